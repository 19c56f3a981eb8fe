"""Fixtures of tests that measure."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from gnnplace.measuring.timing import StoppingRule
from tests import quick_measuring


@pytest.fixture
def measure_quickly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[StoppingRule], None]:
    """Measures with this rule, into a cache of its own; see `quick_measuring`."""
    monkeypatch.setenv("GNNPLACE_CACHE", str(tmp_path / "cache"))
    return partial(quick_measuring.measure_quickly, set_attribute=monkeypatch.setattr)

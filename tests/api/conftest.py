"""Fixtures of tests that measure."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gnnplace.api import measuring
from gnnplace.measuring import busy
from gnnplace.measuring.timing import MeasureOptions, StoppingRule


@pytest.fixture
def measure_quickly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[StoppingRule], None]:
    """Measures with this rule, into a cache of its own, even while other tests keep the devices busy."""
    monkeypatch.setenv("GNNPLACE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(busy, "busy_shares", lambda devices: dict.fromkeys(devices, 0.0))
    return lambda rule: monkeypatch.setattr(measuring, "MEASURE_OPTIONS", MeasureOptions(search=rule, final=rule))

"""Fixtures of tests that measure."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gnnplace.api import pipeline
from gnnplace.cost.measured import CostStore
from gnnplace.measuring.timing import StoppingRule
from tests import quick_measuring


@pytest.fixture
def measure_quickly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[StoppingRule], None]:
    """Measures with this rule, into a cache of its own; see `quick_measuring`."""
    monkeypatch.setenv("GNNPLACE_CACHE", str(tmp_path / "cache"))
    return partial(quick_measuring.measure_quickly, set_attribute=monkeypatch.setattr)


@pytest.fixture
def costs_of_first_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later placements simulate with the costs of the first: others may order ops anew, and so cut a placement elsewhere."""
    profiled, first = pipeline.profiled, list[CostStore]()

    def once(*args: Any) -> CostStore:
        if not first:
            first.append(profiled(*args))
        return first[0]

    monkeypatch.setattr(pipeline, "profiled", once)

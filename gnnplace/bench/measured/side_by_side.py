"""What the searches ended at, measured together: single measurements of a search are too noisy to rank them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gnnplace.api.measuring import MEASURE_OPTIONS
from gnnplace.bench.measured.cases import DEVICES
from gnnplace.bench.real_setting import grouped_model, real_setting
from gnnplace.measuring.measured_evaluator import MeasuredEvaluator
from gnnplace.placement import Placement
from gnnplace.report.bench_format import devices_of_letters

__all__ = ["SideBySide", "measured_together"]

_MAX_S = 120.0


@dataclass(frozen=True)
class SideBySide:
    """The distinct final placements of one model."""

    model: str
    placements: str
    """In letters of devices, with commas between."""

    @staticmethod
    def of(model: str, results: Sequence[Mapping[str, Any]]) -> SideBySide:
        """Those that some searches ended at."""
        return SideBySide(model, ",".join(sorted({result["placement"] for result in results})))


def measured_together(case: SideBySide) -> dict[str, Any]:
    """By placement its median seconds and their spread, and the seconds of one plain session; None for what failed."""
    setting, letters = real_setting(case.model, DEVICES), case.placements.split(",")
    options = replace(MEASURE_OPTIONS, final=replace(MEASURE_OPTIONS.final, max_s=_MAX_S))
    placements = [Placement(np.array(devices_of_letters(text), dtype=np.int64)) for text in letters]
    with MeasuredEvaluator(grouped_model(setting), setting.topology, setting.group_simulator, options) as evaluator:
        comparison = evaluator.compare(placements)
    return {
        "single_s": None if comparison.single is None else comparison.single.makespan_s,
        "placements": {
            text: None if found.failure else {"median_s": found.makespan_s, "spread_s": found.spread_s}
            for text, found in zip(letters, comparison.evaluations, strict=True)
        },
    }

"""What the searches needed to come near the best known placement.

The best known is the fastest of all final placements of a model, measured side by side. A search's own seconds are single
measurements, of which it keeps the least: its seconds are stretched so that its final placement has those of the side-by-side measurement.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gnnplace.bench.measured.cases import Run

__all__ = ["NEAR", "planner_lines", "reached", "totals"]

NEAR = 1.02
Result = Mapping[str, Any]


def reached(result: Result, final_s: float | None, best_s: float) -> tuple[int, float] | None:
    """Evaluations and wall seconds until the best of a search was near the best known; None where it never was.

    >>> searched = {"searched_s": 2.0, "history": [[1, 0.5, 8.0], [9, 4.0, 2.03], [30, 15.0, 2.0]]}
    >>> reached(searched, 4.0, 4.0), reached(searched, 4.0, 3.0)
    ((9, 4.0), None)
    """
    if final_s is None or result["searched_s"] is None:
        return None
    stretch = final_s / result["searched_s"]
    return next(
        ((int(count), wall_s) for count, wall_s, seconds in result["history"] if seconds * stretch <= NEAR * best_s),
        None,
    )


def planner_lines(results: Mapping[Run, Result], together: Mapping[str, Result]) -> list[dict[str, Any]]:
    """A line per model and planner, medians over seeds; evaluations and minutes only of the seeds that came near."""
    lines = []
    for model, side in together.items():
        finals = {text: None if found is None else found["median_s"] for text, found in side["placements"].items()}
        best_s = min((seconds for seconds in finals.values() if seconds is not None), default=None)
        for planner in dict.fromkeys(run.planner for run in results):
            mine = {run.seed: result for run, result in results.items() if (run.model, run.planner) == (model, planner)}
            if mine and best_s is not None:
                lines.append(
                    {"model": model, "planner": planner, **_line(list(mine.values()), finals, best_s, side["single_s"])}
                )
    return lines


def _line(
    mine: Sequence[Result], finals: Mapping[str, float | None], best_s: float, single_s: float | None
) -> dict[str, Any]:
    seconds = [finals[result["placement"]] for result in mine]
    ran = [value for value in seconds if value is not None]
    near = [reached(result, final_s, best_s) for result, final_s in zip(mine, seconds, strict=True)]
    came = [found for found in near if found is not None]
    median_s = statistics.median(ran) if ran else None
    return {
        "runs": len(mine),
        "never_near": len(mine) - len(came),
        "evaluations_to_near": _median(count for count, _ in came),
        "minutes_to_near": _median(wall_s / 60.0 for _, wall_s in came),
        "measured_s": median_s,
        "ratio_to_best": None if median_s is None else median_s / best_s,
        "speed_up": None if median_s is None or single_s is None else single_s / median_s,
        "executing_share": _median(result["executing_s"] / max(1e-9, result["wall_s"]) for result in mine),
        "minutes": _median(result["wall_s"] / 60.0 for result in mine),
        "evaluations": _median(result["evaluations"] for result in mine),
        "simulated": _median(result["simulated"] for result in mine),
        "by_seed": [None if found is None else list(found) for found in near],
    }


def totals(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """By planner over all models: how often it never came near, and its mean ratio to the best known."""
    told: dict[str, Any] = {}
    for planner in dict.fromkeys(line["planner"] for line in lines):
        mine = [line for line in lines if line["planner"] == planner]
        found = [line["ratio_to_best"] for line in mine if line["ratio_to_best"] is not None]
        told[f"{planner}_never_near"] = (
            f"{sum(line['never_near'] for line in mine)} of {sum(line['runs'] for line in mine)}"
        )
        told[f"{planner}_mean_ratio_to_best"] = statistics.fmean(found) if found else None
    return told


def _median(values: Iterable[float]) -> float | None:
    several = list(values)
    return float(statistics.median(several)) if several else None

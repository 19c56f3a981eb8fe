"""Writes `placements.json`: what every planner answers on three zoo problems with two seeds.

    python tests/golden/make_placements.py [--check]

`--check` compares with the stored answers instead, and exits with 1 where one differs. A change that is meant to keep results runs it
before and after.
"""

import hashlib
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

PROBLEMS = (("zoo:layered_200", "k40x2"), ("zoo:cifar_cell_00", "k40x4"), ("zoo:inception_v3", "k40x2@3GiB"))
SEEDS = (0, 1)
EVALUATIONS = 60
STORED = Path(__file__).parent / "placements.json"


def answer(case: tuple[str, str, str, int]) -> dict[str, object]:
    """The makespan and a digest of the placement of every op that one planner finds."""
    from gnnplace.api import PlaceOptions, place
    from gnnplace.errors import GnnplaceError

    model, devices, planner, seed = case
    row: dict[str, object] = {"model": model, "devices": devices, "planner": planner, "seed": seed}
    try:
        plan = place(model, devices, PlaceOptions(planner=planner, evaluations=EVALUATIONS, seed=seed))
    except GnnplaceError as error:
        return row | {"error": type(error).__name__}
    searched = plan.solution.placement
    digest = hashlib.sha256(np.ascontiguousarray(searched.assignment, dtype=np.int64).tobytes())
    if searched.priorities is not None:
        digest.update(np.ascontiguousarray(searched.priorities, dtype=np.float64).tobytes())
    final = hashlib.sha256(np.ascontiguousarray(plan.placement.assignment, dtype=np.int64).tobytes())
    return row | {
        "searched_s": float(plan.solution.objective_s),
        "makespan_s": float(plan.evaluation.makespan_s),
        "searched": digest.hexdigest()[:16],
        "answer": final.hexdigest()[:16],
    }


def main() -> int:
    """Writes or checks."""
    from gnnplace.planners.catalog import PLANNERS

    cases = [(*problem, planner, seed) for planner in PLANNERS for problem in PROBLEMS for seed in SEEDS]
    with ProcessPoolExecutor(2) as pool:
        rows = list(pool.map(answer, cases))
    if "--check" not in sys.argv[1:]:
        STORED.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8")
        return 0
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    different = [(now, before) for now, before in zip(rows, stored, strict=True) if now != before]
    for now, before in different:
        print(f"{before}\n  now {now}")
    print(f"{len(rows) - len(different)} of {len(rows)} answers are as stored")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())

"""The composition root: one pipeline behind `place`, `evaluate`, `compare`, `profile` and `train`.

In reading order: `options.py` (options and shapes), `workload.py` (a model as an op graph), `problem_setup.py` (the graph on
devices, with costs and simulators), `auto_devices.py` (the devices of `auto` that run a model), `recorded.py` (records as
workloads), `search.py` (runs of planners, here or on the hosts of a cluster), `measuring.py` (profiles and executed placements), `judging.py` (the choice of the answer), `pipeline.py` (the main
path through all of these), `profiling.py` (`profile`), `plan.py` (the answer and its files), `record.py` (the computed parts of
`run.json`), `training_problems.py`, `measured_training.py`, `train_settings.py` and `training_run.py` (`train`).
"""

from gnnplace.api.options import PlaceOptions
from gnnplace.api.pipeline import compare, evaluate, place, plan_of, problem, set_up
from gnnplace.api.plan import Plan
from gnnplace.api.problem_setup import ProblemSetup
from gnnplace.api.profiling import profile
from gnnplace.api.workload import Workload, load_workload

__all__ = [
    "PlaceOptions", "Plan", "ProblemSetup", "Workload", "compare", "evaluate", "load_workload", "place", "plan_of",
    "problem", "profile", "set_up",
]  # fmt: skip

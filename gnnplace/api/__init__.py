"""The composition root: one pipeline behind `place`, `evaluate`, `compare`, `profile` and `train`.

In reading order: `options.py` (options and shapes), `workload.py` (a model as an op graph), `problem_setup.py` (that graph on
devices, with costs and simulators), `search.py` (planners at work, here or on the hosts of a cluster), `measuring.py` (profiles
and executed placements), `judging.py` (which placement is the answer), `pipeline.py` (the main path through all of these),
`plan.py` (the answer and its files), `record.py` and `timeline.py` (the contents of `run.json`), `training_problems.py` (the
problems that a policy is trained on), `training_run.py` (`train`).
"""

from gnnplace.api.options import PlaceOptions
from gnnplace.api.pipeline import compare, evaluate, place, plan_of, problem, profile, set_up
from gnnplace.api.plan import Plan
from gnnplace.api.problem_setup import ProblemSetup
from gnnplace.api.workload import Workload, load_workload

__all__ = [
    "PlaceOptions",
    "Plan",
    "ProblemSetup",
    "Workload",
    "compare",
    "evaluate",
    "load_workload",
    "place",
    "plan_of",
    "problem",
    "profile",
    "set_up",
]

"""The composition root: wires evaluators, planners and artefacts together behind `gnnplace.place`, `Plan`, `Session`.

In reading order: `shapes.py` (the sizes of inputs that count), `options.py`, `workload.py` (a model of any kind as an op graph), `setting.py` (that graph on devices, with costs),
`solved.py` (a solution seen on the whole graph), `hosts.py` (the same on the hosts of a cluster), `place.py` (the main path), `measuring.py` (the same with executed rewards), `host_placing.py` (the same for devices of several hosts), `plan.py` (the answer),
`timeline.py` (critical path, and memory over time), `mobility.py` (why an op may not move), `record.py` (`run.json`), `artefacts.py` (what a plan writes), `given.py` (a placement that somebody made, as a plan), `comparison.py` (several planners, or one given placement), `training_problems.py` (what a policy
is trained on), `train.py` (a training run).
"""

from gnnplace.api.comparison import compare, evaluate
from gnnplace.api.given import plan_of
from gnnplace.api.options import PlaceOptions
from gnnplace.api.pipeline import problem, set_up
from gnnplace.api.place import place
from gnnplace.api.plan import Plan
from gnnplace.api.problem_setup import ProblemSetup
from gnnplace.api.workload import Workload, load_workload
from gnnplace.devices.spec import load_topology
from gnnplace.onnx_io.read import read_onnx

__all__ = [
    "PlaceOptions",
    "Plan",
    "ProblemSetup",
    "Workload",
    "compare",
    "evaluate",
    "load_topology",
    "load_workload",
    "place",
    "plan_of",
    "problem",
    "read_onnx",
    "set_up",
]

"""gnnplace: which device runs which op of an ONNX model, so that one step takes the least time and fits in memory.

The public names load on first use, so that `import gnnplace` needs neither torch nor ONNX Runtime.
"""

import importlib
from typing import TYPE_CHECKING, Any

from gnnplace.compiled_code import find_room_for_compiled_code

if TYPE_CHECKING:
    from gnnplace.api import (
        PlaceOptions,
        Plan,
        ProblemSetup,
        compare,
        evaluate,
        place,
        plan_of,
        problem,
        profile,
        set_up,
    )
    from gnnplace.api.train_settings import TrainSettings
    from gnnplace.api.training_run import train
    from gnnplace.devices import Device, Link, Topology, load_topology
    from gnnplace.errors import GnnplaceError
    from gnnplace.evaluation import Evaluation, Problem
    from gnnplace.graph import Op, OpGraph, Tensor
    from gnnplace.onnx_io.read import read_onnx
    from gnnplace.placement import Placement, load_placement
    from gnnplace.planners.catalog import PLANNERS, load_planner
    from gnnplace.planners.search import Search
    from gnnplace.planners.solution import Budget, Solution
    from gnnplace.running.session import Session
    from gnnplace.schedule import Schedule, check_schedule
    from gnnplace.sim import Simulator
    from models_zoo.records.names import record_names
    from models_zoo.records.record import Record, load_record

__version__ = "0.1.0"

__all__ = [
    "PLANNERS", "Budget", "Device", "DistributedSession", "Evaluation", "GnnplaceError", "Link", "Op", "OpGraph",
    "PlaceOptions", "Placement", "Plan", "Problem", "ProblemSetup", "Record", "Schedule", "Search", "Session",
    "Simulator", "Solution", "Tensor", "Topology", "TrainSettings", "__version__", "check_schedule", "compare",
    "evaluate", "load_placement", "load_planner", "load_record", "load_topology", "place", "plan_of", "problem",
    "profile", "read_onnx", "record_names", "set_up", "train",
]  # fmt: skip

find_room_for_compiled_code()
_HOMES = {
    "gnnplace.api": "PlaceOptions Plan ProblemSetup compare evaluate place plan_of problem profile set_up",
    "gnnplace.api.train_settings": "TrainSettings",
    "gnnplace.api.training_run": "train",
    "gnnplace.devices": "Device Link Topology load_topology",
    "gnnplace.distributed.execution": "DistributedSession",
    "gnnplace.errors": "GnnplaceError",
    "gnnplace.evaluation": "Evaluation Problem",
    "gnnplace.graph": "Op OpGraph Tensor",
    "gnnplace.onnx_io.read": "read_onnx",
    "gnnplace.placement": "Placement load_placement",
    "gnnplace.planners.catalog": "PLANNERS load_planner",
    "gnnplace.planners.search": "Search",
    "gnnplace.planners.solution": "Budget Solution",
    "gnnplace.running.session": "Session",
    "gnnplace.schedule": "Schedule check_schedule",
    "gnnplace.sim": "Simulator",
    "models_zoo.records.names": "record_names",
    "models_zoo.records.record": "Record load_record",
}


def __getattr__(name: str) -> Any:
    """The public name, from the module that defines it."""
    module = next((module for module, names in _HOMES.items() if name in names.split()), None)
    if module is None:
        raise AttributeError(f"module 'gnnplace' has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return __all__

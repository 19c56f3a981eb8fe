"""Models that two cores run faster than one, and what is compared on them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from gnnplace.api.measuring import executable, profiled
from gnnplace.api.setting import Setting, setting_of, topology_of
from gnnplace.api.workload import load_workload
from gnnplace.cost.measured import MeasuredCost
from gnnplace.executors.grouped_parts import GroupedModel

__all__ = ["DEVICES", "EVALUATIONS", "MODELS", "PLANNERS", "SEEDS", "Run", "grouped_model", "setting_of_model"]

DEVICES = "cpu:0,cpu:1"
MODELS = (
    "ensemble_cnn:batch=2",
    "cifar_cell_00:batch=8",
    "nasnet_mobile:batch=2",
    "nmt_2:batch=16:hidden=512:steps=6:vocabulary=4000",
)
"""Of the zoo, with batches so small that an execution takes about a tenth of a second or less on one core."""
PLANNERS = ("gnn", "annealing", "placeto", "coloc-rl")
EVALUATIONS = 150
SEEDS = 3


@dataclass(frozen=True)
class Run:
    """One search."""

    model: str
    planner: str
    seed: int
    evaluations: int


@lru_cache(maxsize=1)
def setting_of_model(model: str) -> Setting:
    """A zoo model on the two cores, with the costs that this machine measures for it."""
    workload, topology = load_workload(f"zoo:{model}", to_run=True), topology_of(DEVICES)
    return setting_of(workload, topology, MeasuredCost(profiled(workload, topology, seed=0)))


def grouped_model(setting: Setting) -> GroupedModel:
    """What is executed."""
    return GroupedModel(executable(setting.workload), setting.coarsening.graph, setting.coarsening.group_of_op)

"""A zoo model on devices of this machine, with the costs that were measured there, ready to be executed."""

from __future__ import annotations

from functools import lru_cache

from gnnplace.api.measuring import executable, profiled
from gnnplace.api.problem_setup import Setting, setting_of, topology_of
from gnnplace.api.workload import load_workload
from gnnplace.cost.measured import MeasuredCost
from gnnplace.measuring.grouped_parts import GroupedModel

__all__ = ["grouped_model", "real_setting"]


@lru_cache(maxsize=1)
def real_setting(model: str, devices: str) -> Setting:
    """A zoo model on real devices, with the costs that this machine measures for it."""
    workload, topology = load_workload(f"zoo:{model}", to_run=True), topology_of(devices)
    return setting_of(workload, topology, MeasuredCost(profiled(workload, topology, seed=0)))


def grouped_model(setting: Setting) -> GroupedModel:
    """What is executed."""
    return GroupedModel(executable(setting.workload), setting.coarsening.graph, setting.coarsening.group_of_op)

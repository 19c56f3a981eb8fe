"""A workload on devices: costs, simulators of the whole graph and of its groups, and the problem that planners get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from gnnplace.api.workload import Workload
from gnnplace.arrays import FloatArray, IntArray
from gnnplace.cost.cost_model import CostModel
from gnnplace.cost.measured import CostStore, MeasuredCost
from gnnplace.cost.measurement_store import MeasurementStore
from gnnplace.devices.detect import machine_facts
from gnnplace.devices.spec import load_topology
from gnnplace.devices.topology import Topology
from gnnplace.evaluation import DimsObjective, Evaluator, Objective, Problem
from gnnplace.files import cache_folder
from gnnplace.graph.coarsen import Coarsening, coarsen
from gnnplace.graph.op_graph import OpGraph
from gnnplace.planners.catalog import PLANNERS
from gnnplace.running.devices import cuda_is_offered
from gnnplace.sim.bounds import LowerBound, lower_bound
from gnnplace.sim.several import SeveralSimulators
from gnnplace.sim.simulator import GroupedSimulator, Simulator
from gnnplace.versions import installed_versions

__all__ = ["MAX_GROUPS", "ProblemSetup", "Setting", "measurement_store", "setting_of", "stored_costs", "topology_of"]


MAX_GROUPS = 512
LARGE = 2_000
"""Some planners are handed graphs of more ops than that op by op, what is colocated or fused in one. With 2,000 evaluations `gnn` was
then 34 % faster on a layered graph of 10,000 ops, 20 % on one of 3,000, 11 % on a series-parallel one of 5,000. Nine training steps of
3,500 to 7,600 ops on `k40x2` and `v100x8`, three seeds: 0.1 % faster (geometric mean), from 4.4 % faster to 2.5 % slower; on one of
2,528 ops on `v100x8` 14 % slower."""


@dataclass(frozen=True, eq=False)
class ProblemSetup:
    """One workload on one device set with the seconds of every op on every device.

    >>> from gnnplace import set_up
    >>> setup = set_up("zoo:layered_200", "k40x2", max_groups=20)
    >>> setup.coarsening.graph.num_ops <= 20, setup.bound.value_s > 0
    (True, True)
    """

    workload: Workload
    topology: Topology
    op_time_s: FloatArray  # [N, D]
    coarsening: Coarsening
    objective: Objective = "latency"
    num_threads: int | None = None
    """That a simulator may use; None: as many as there are cores."""
    others: tuple[ProblemSetup, ...] = ()
    """The same ops at other sizes of the inputs, in the same groups."""
    dims_objective: DimsObjective = "worst"
    """Which of the times at all these sizes counts."""
    groups_chosen: bool = False
    """How many groups there are was asked for, so every planner gets these."""
    fused: IntArray | None = None
    """`[N]` equal numbers for ops that some device runs as one kernel, if that is known."""

    def for_planner(self, name: str) -> ProblemSetup:
        """This setting, or for large graphs and planners that can take it, the same without groups but colocated and fused ops."""
        if self.groups_chosen or name not in PLANNERS or not PLANNERS[name].takes_all_ops:
            return self
        large = self.workload.graph.num_ops > LARGE and self._of_ops.coarsening.graph.num_ops > LARGE
        return self._of_ops if large else self

    @cached_property
    def _of_ops(self) -> ProblemSetup:
        graph = self.workload.graph
        coarsening = coarsen(graph, graph.num_ops, fused=self.fused)
        others = tuple(replace(other, coarsening=coarsening) for other in self.others)
        return replace(self, coarsening=coarsening, others=others)

    @cached_property
    def simulator(self) -> Simulator:
        """Of the whole graph."""
        return self._simulator(self.workload.graph, self.op_time_s)

    @cached_property
    def evaluator(self) -> Simulator | SeveralSimulators:
        """Of the whole graph, at all sizes: the last word on simulated seconds."""
        if not self.others:
            return self.simulator
        return SeveralSimulators((self.simulator, *(other.simulator for other in self.others)), self.dims_objective)

    @cached_property
    def group_simulator(self) -> Simulator:
        """Of the op groups, which planners decide on; the same one where nothing was grouped."""
        if self.coarsening.graph is self.workload.graph:
            return self.simulator
        return self._simulator(self.coarsening.graph, self.coarsening.total(self.op_time_s))

    @cached_property
    def group_evaluator(self) -> Simulator | SeveralSimulators:
        """Of the op groups, at all sizes."""
        if not self.others:
            return self.group_simulator
        groups = (self.group_simulator, *(other.group_simulator for other in self.others))
        return SeveralSimulators(groups, self.dims_objective)

    def problem(self, evaluator: Evaluator | None = None, executed_at_once: int = 1) -> Problem:
        """What planners get: op groups to decide on; rewards come from `evaluator`, else from the whole graph's simulator."""
        groups = self.group_simulator
        simulated: Simulator | SeveralSimulators | GroupedSimulator = self.evaluator
        if groups is not self.simulator:
            whole = [self.simulator, *(other.simulator for other in self.others)]
            grouped = tuple(GroupedSimulator(self.coarsening, simulator, groups) for simulator in whole)
            simulated = SeveralSimulators(grouped, self.dims_objective) if self.others else grouped[0]
        return Problem(
            graph=self.coarsening.graph,
            topology=self.topology,
            op_time_s=groups.op_time_s,
            evaluator=simulated if evaluator is None else evaluator,
            estimator=simulated,
            objective=self.objective,
            grouped=groups is not self.simulator or bool(self.others),
            executed_at_once=executed_at_once,
        )

    @cached_property
    def bound(self) -> LowerBound:
        """Seconds that no placement of the whole graph can beat; at several sizes, the greatest or the mean of their bounds."""
        own = lower_bound(self.workload.graph, self.topology, self.op_time_s, self.objective)
        bounds = [own, *(other.bound for other in self.others)]
        if self.others and self.dims_objective == "mean":
            return LowerBound(sum(bound.value_s for bound in bounds) / len(bounds), "mean of the bounds of all shapes")
        return max(bounds, key=lambda bound: bound.value_s)

    def _simulator(self, graph: OpGraph, op_time_s: FloatArray) -> Simulator:
        if self.num_threads is None:
            return Simulator(graph, self.topology, op_time_s)
        return Simulator(graph, self.topology, op_time_s, self.num_threads)


Setting = ProblemSetup


def topology_of(devices: str | Path | Topology) -> Topology:
    """The devices that `place` and its kin are given; `auto` lists GPUs only when ONNX Runtime can use them.

    Raises:
        InvalidTopology: they cannot be understood, or are not on this machine.
    """
    return devices if isinstance(devices, Topology) else load_topology(str(devices), with_gpus=cuda_is_offered())


def setting_of(
    workload: Workload,
    topology: Topology,
    cost: CostModel | None = None,
    objective: Objective = "latency",
    max_groups: int | None = None,
    dims_objective: DimsObjective = "worst",
) -> ProblemSetup:
    """The setting with costs from `cost`; None takes what this machine has measured before, else the roofline.

    None for `max_groups` are 512, and for large graphs and some planners as many as there are ops; see `ProblemSetup.for_planner`.

    Measured costs belong to a kind of device, so they never touch presets. What these devices' runtime is known to fuse stays
    together in a group.

    Raises:
        InvalidTopology: the devices state too little for an op.
        InvalidPlacement: an op that no device may run.
    """
    model, fused = _cost_model(workload, cost), _fused(workload, topology)
    setting = ProblemSetup(
        workload=workload,
        topology=model.calibrated(topology),
        op_time_s=model.op_time_s(workload.graph, topology),
        coarsening=coarsen(workload.graph, max_groups or MAX_GROUPS, fused=fused),
        objective=objective,
        dims_objective=dims_objective,
        groups_chosen=max_groups is not None,
        fused=fused,
    )
    others = (
        replace(setting, workload=other, op_time_s=_cost_model(other, cost).op_time_s(other.graph, topology))
        for other in workload.others
    )
    return replace(setting, others=tuple(others))


def _cost_model(workload: Workload, cost: CostModel | None) -> CostModel:
    """The given one, else what this machine has measured, with this model at this shape first."""
    if cost is not None:
        return cost
    return MeasuredCost(stored_costs(None if workload.onnx is None else workload.onnx.key))


def _fused(workload: Workload, topology: Topology) -> IntArray | None:
    """`[N]` equal numbers for ops that some device of the set runs as one kernel; None when it was never profiled there."""
    if workload.onnx is None or not _measurements_file().exists():
        return None
    found = measurement_store().kernels({device.kind for device in topology.devices}, workload.onnx.key)
    if not found:
        return None
    num_ops = workload.graph.num_ops
    same = sum(
        coo_array((np.ones(num_ops), (np.arange(num_ops), kernel)), shape=(num_ops, num_ops)) for kernel in found
    )
    return np.asarray(connected_components(same, directed=False)[1], dtype=np.int64)


def stored_costs(model: str | None = None) -> CostStore:
    """What this machine has measured so far, with the key of a model for that model; empty at first.

    Raises:
        MeasurementFailed: the file that keeps it cannot be understood.
    """
    return measurement_store().costs(model) if _measurements_file().exists() else CostStore()


def measurement_store(facts: Mapping[str, Any] | None = None) -> MeasurementStore:
    """Where all is kept that is measured with this machine and this ONNX Runtime, or with what `facts` say.

    Raises:
        MeasurementFailed: the file cannot be made, or is something else.
    """
    runtimes = installed_versions("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino")
    return MeasurementStore(_measurements_file(), {**machine_facts(), **runtimes} if facts is None else facts)


def _measurements_file() -> Path:
    return cache_folder() / "measurements.sqlite"

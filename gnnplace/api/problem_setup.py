"""A workload on devices: costs, simulators of the whole graph and of its op groups, and the problem for planners."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from gnnplace.api.options import PlaceOptions
from gnnplace.api.workload import Workload
from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.cost.cost_model import CostModel
from gnnplace.cost.measured import CostStore, MeasuredCost
from gnnplace.cost.measurement_store import MeasurementStore
from gnnplace.devices.detect import allowed_cores, machine_facts
from gnnplace.devices.spec import load_topology, with_session_device
from gnnplace.devices.topology import Topology
from gnnplace.evaluation import Evaluation, Evaluator, Problem, SimulatedEvaluator
from gnnplace.files import cache_folder
from gnnplace.graph.coarsen import Coarsening, coarsen
from gnnplace.measuring.grouped_parts import GroupedModel
from gnnplace.objectives import DimsObjective, Objective
from gnnplace.onnx_io.kernels import KernelModel
from gnnplace.onnx_io.segments import Segment
from gnnplace.placement import Placement
from gnnplace.planners.catalog import PLANNERS
from gnnplace.planners.solution import Solution
from gnnplace.run_record import finite
from gnnplace.running.devices import cuda_is_offered, offered_providers, runs_kernels
from gnnplace.running.optimised import optimised
from gnnplace.sim.bounds import LowerBound, lower_bound
from gnnplace.sim.several import over_shapes
from gnnplace.sim.simulator import GroupedSimulator, Simulator
from gnnplace.versions import installed_versions

MAX_GROUPS = 512
"""Default for the maximum number of op groups. Some planners place graphs with more ops op by op: only colocated and fused ops stay together.

On sixteen graphs of 600 to 3,700 ops HEFT was 5 % shorter that way, PEFT and the expert 2 %, `annealing` 3 % longer after 2 s (geometric
means). `MultilevelConfig` has figures of `gnn`. With 2,000 evaluations, the steps that it found op by op were 34 % shorter on a layered graph
of 10,000 ops, 20 % on one of 3,000, and 11 % on a series-parallel one of 5,000. On nine training steps of 3,500 to 7,600 ops (`k40x2`,
`v100x8`, three seeds) they were 0.1 % shorter (from 4.4 % shorter to 2.5 % longer), and 14 % longer on one of 2,528 ops on `v100x8`."""


@dataclass(frozen=True, eq=False)
class ProblemSetup:
    """One workload on one device set with the seconds of every op on every device, at every shape of the inputs.

    >>> from gnnplace import set_up
    >>> setup = set_up("zoo:layered_200", "k40x2", max_groups=20)
    >>> setup.coarsening.graph.num_ops <= 20, setup.bound.value_s > 0
    (True, True)
    """

    workload: Workload
    topology: Topology
    op_times_s: tuple[FloatArray, ...]
    """`[N, D]` seconds of every op on every device, per shape."""
    coarsening: Coarsening
    objective: Objective = "latency"
    num_threads: int = field(default_factory=lambda: len(allowed_cores()))
    """Threads of a simulator."""
    dims_objective: DimsObjective = "worst"
    """How the times at several shapes combine."""
    groups_chosen: bool = False
    """The caller chose the number of groups, so every planner gets these groups."""
    fused: IntArray | None = None
    """`[N]` equal numbers for ops that some device runs as one kernel; None if no device was profiled."""
    cuts_kernels: bool = False
    """Parts on cores of this machine are cut out of the model that ONNX Runtime optimises for its CPU."""
    warnings: tuple[str, ...] = ()
    """Warnings of profiling."""

    @classmethod
    def build(
        cls,
        workload: Workload,
        topology: Topology,
        cost: CostModel | None = None,
        options: PlaceOptions = PlaceOptions(),
    ) -> ProblemSetup:
        """A workload on devices with the costs of `cost`; None: those measured on this machine, else those of the roofline.

        Of the options, `objective`, `max_groups`, `dims_objective`, `measure` and `ray` count. Measured costs belong to kinds of
        devices of this machine and never apply to presets. Ops that their runtime fuses share a group. With `measure`, every
        planner decides on groups, since each group is compiled once.

        Raises:
            InvalidTopology: the devices state too little for an op.
            InvalidPlacement: an op that no device may run.
        """
        max_groups = options.max_groups or (MAX_GROUPS if options.measure else None)
        keys: list[str | None] = [model.key for model in workload.models] or [None]
        costs = [MeasuredCost(stored_costs(key)) if cost is None else cost for key in keys]
        fused = _fused(workload, topology)
        times_s = (model.op_time_s(graph, topology) for model, graph in zip(costs, workload.graphs, strict=True))
        return cls(
            workload=workload,
            topology=costs[0].calibrated(topology),
            op_times_s=tuple(times_s),
            coarsening=coarsen(workload.graph, max_groups or MAX_GROUPS, fused=fused),
            objective=options.objective,
            dims_objective=options.dims_objective,
            groups_chosen=max_groups is not None,
            fused=fused,
            cuts_kernels=fused is not None and options.ray is None,
        )

    def for_planner(self, name: str) -> ProblemSetup:
        """The setup of a planner: without groups if the graph is large and the planner can place it op by op."""
        if self.groups_chosen or name not in PLANNERS or not PLANNERS[name].takes_all_ops:
            return self
        large = self.workload.graph.num_ops > MAX_GROUPS and self._of_ops.coarsening.graph.num_ops > MAX_GROUPS
        return self._of_ops if large else self

    @cached_property
    def _of_ops(self) -> ProblemSetup:
        graph = self.workload.graph
        return replace(self, coarsening=coarsen(graph, graph.num_ops, fused=self.fused))

    @property
    def op_time_s(self) -> FloatArray:
        """`[N, D]` seconds of every op on every device at the first shape."""
        return self.op_times_s[0]

    @cached_property
    def simulators(self) -> tuple[Simulator, ...]:
        """Simulators of the whole graph, one per shape."""
        pairs = zip(self.workload.graphs, self.op_times_s, strict=True)
        return tuple(Simulator(graph, self.topology, op_time_s, self.num_threads) for graph, op_time_s in pairs)

    @property
    def simulator(self) -> Simulator:
        """Simulator of the whole graph at the first shape."""
        return self.simulators[0]

    @cached_property
    def evaluator(self) -> SimulatedEvaluator:
        """Simulator of the whole graph at all shapes."""
        return over_shapes(self.simulators, self.dims_objective)

    @cached_property
    def group_simulators(self) -> tuple[Simulator, ...]:
        """Simulators of the op groups, one per shape; `simulators` if no ops were grouped."""
        if self.coarsening.graph is self.workload.graph:
            return self.simulators
        return tuple(simulator.of_groups(self.coarsening) for simulator in self.simulators)

    @property
    def group_simulator(self) -> Simulator:
        """Simulator of the op groups at the first shape."""
        return self.group_simulators[0]

    @cached_property
    def group_evaluator(self) -> SimulatedEvaluator:
        """Simulator of the op groups at all shapes."""
        return over_shapes(self.group_simulators, self.dims_objective)

    @property
    def grouped_model(self) -> GroupedModel:
        """The ONNX model with its op groups, to execute placements of the groups.

        Raises:
            UnsupportedModel: the workload is an op graph.
        """
        self.workload.check_executable()
        return GroupedModel(
            self.workload.models, self.coarsening.graph, self.coarsening.group_of_op, self.kernels, self.runs_kernels
        )

    @property
    def kernels(self) -> KernelModel | None:
        """The optimised model that parts are cut from; None where they hold the ops as they are."""
        has_cores = self.cuts_kernels and self.runs_kernels.any()
        return _optimised(self.workload.onnx) if has_cores and self.workload.onnx is not None else None

    @cached_property
    def runs_kernels(self) -> BoolArray:
        """`[D]` the devices that are cores of this machine."""
        return np.array([runs_kernels(name) for name in self.topology.device_names])

    def segments(self, placement: Placement, order: IntArray) -> tuple[Segment, ...]:
        """The segments in which a placement of every op runs, when ops run in an order `[N]`."""
        excludes, kernels = self.topology.excludes, self.kernels
        found = None if kernels is None else kernels.segments(placement.assignment, order, excludes, self.runs_kernels)
        return self.workload.segments(placement.assignment, order, excludes) if found is None else found

    def problem(self, evaluator: Evaluator | None = None, executed_at_once: int = 1) -> Problem:
        """The problem of placing the op groups; `evaluator` replaces the simulator, and executes `executed_at_once` placements."""
        simulated, grouped = self.evaluator, self.group_simulators is not self.simulators
        if grouped:
            pairs = zip(self.simulators, self.group_simulators, strict=True)
            members = tuple(GroupedSimulator(self.coarsening, whole, groups) for whole, groups in pairs)
            simulated = over_shapes(members, self.dims_objective)
        return Problem(
            graph=self.coarsening.graph,
            topology=self.topology,
            op_time_s=self.group_simulator.op_time_s,
            evaluator=simulated if evaluator is None else evaluator,
            estimator=simulated,
            objective=self.objective,
            grouped=grouped or self._has_several_shapes,
            executed_at_once=executed_at_once,
        )

    @cached_property
    def bound(self) -> LowerBound:
        """Lower bound of the seconds of all placements; at several shapes, the greatest or the mean of their bounds."""
        bounds = [
            lower_bound(graph, self.topology, op_time_s, self.objective)
            for graph, op_time_s in zip(self.workload.graphs, self.op_times_s, strict=True)
        ]
        if self._has_several_shapes and self.dims_objective == "mean":
            return LowerBound(sum(bound.value_s for bound in bounds) / len(bounds), "mean of the bounds of all shapes")
        return max(bounds, key=lambda bound: bound.value_s)

    def bound_with(self, solution: Solution) -> LowerBound:
        """The greater of `bound` and the bound that the planner proved."""
        # The planner proves a bound for the first shape, which bounds the longest time of all shapes but not their mean.
        proves = not self._has_several_shapes or self.dims_objective == "worst"
        proven_s = (solution.lower_bound_s or 0.0) if proves else 0.0
        return LowerBound(proven_s, f"proof by {solution.planner}") if proven_s > self.bound.value_s else self.bound

    def gap(self, solution: Solution, evaluation: Evaluation) -> float | None:
        """The objective above `bound_with`, as a fraction of the bound; None if there is no bound or the placement cannot run."""
        seconds = evaluation.makespan_s if self.objective == "latency" else evaluation.period_s
        bound_s = self.bound_with(solution).value_s
        return finite(seconds / bound_s - 1.0) if bound_s > 0 else None

    def evaluate_groups(self, placement: Placement) -> tuple[Placement, Evaluation]:
        """The placement of every op that follows from one of the op groups, and its simulated cost."""
        whole = placement.expanded(self.coarsening.group_of_op)
        return whole, self.evaluator.evaluate(whole)

    def with_session(self, name: str, like: str, ratio: float) -> ProblemSetup:
        """The setup with one more device, the cores of one plain session, for the placement of all ops there.

        Only the seconds of the whole session were measured. Each op therefore takes `ratio` times its seconds on the device
        `like`, the measured ratio of both sessions. The device has no links.
        """
        column = self.topology.device_index[like]
        times_s = tuple(np.column_stack([each, ratio * each[:, column]]) for each in self.op_times_s)
        return replace(self, topology=with_session_device(self.topology, name), op_times_s=times_s)

    @property
    def _has_several_shapes(self) -> bool:
        return len(self.workload.graphs) > 1


def topology_of(devices: str | Path | Topology, without: Collection[str] = ()) -> Topology:
    """The topology of a device set; `auto` includes GPUs if ONNX Runtime can use them.

    It also includes the devices of ONNX Runtime's other providers but those of `without`.

    Raises:
        InvalidTopology: the devices cannot be understood, or are not on this machine.
    """
    if isinstance(devices, Topology):
        return devices
    providers = [name for name in offered_providers() if name not in without]
    return load_topology(str(devices), cuda_is_offered(), providers)


_optimised = lru_cache(maxsize=2)(optimised)


def _fused(workload: Workload, topology: Topology) -> IntArray | None:
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
    """The costs measured on this machine; measurements of the model with the key `model` take precedence.

    Raises:
        MeasurementFailed: the file of the measurements cannot be read.
    """
    return measurement_store().costs(model) if _measurements_file().exists() else CostStore()


MEASURED_AS = {
    "parts_run_by": "compiled threads on cores for all providers, optimised kernels in the order of one session",
    "ops_profiled_as": "kernels without the profiler's own seconds, each round with warm caches",
}
"""What measured costs depend on besides the machine; costs that an earlier version measured otherwise do not count."""


def measurement_store(facts: Mapping[str, Any] | None = None) -> MeasurementStore:
    """The store of measurements by this machine and ONNX Runtime, or by the machines that `facts` describe.

    Raises:
        MeasurementFailed: the file cannot be made, or is no store.
    """
    runtimes = installed_versions("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino")
    own = {**machine_facts(), **runtimes, **MEASURED_AS}
    return MeasurementStore(_measurements_file(), own if facts is None else facts)


def _measurements_file() -> Path:
    return cache_folder() / "measurements.sqlite"

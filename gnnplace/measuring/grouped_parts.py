"""From a placement of op groups to the parts that devices run, and back from measured parts to segments."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.cost.measurement_store import MeasuredSegment
from gnnplace.devices.real_names import parse_real
from gnnplace.devices.topology import Topology
from gnnplace.graph.op_graph import OpGraph
from gnnplace.isolated_process import available_memory_bytes
from gnnplace.measuring.worker_process import Setup
from gnnplace.objectives import DimsObjective
from gnnplace.onnx_io.external_data import external_files, light_copy
from gnnplace.onnx_io.kernels import KernelModel
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.part import Part
from gnnplace.onnx_io.segments import Segment, segments
from gnnplace.onnx_io.split import ModelCutter

_OPTIMISED = "optimised"  # in the key of a part of kernels, which are numbered differently from ops
_MAX_KEPT_JOBS = 64
_MAX_PARTS = 4096  # some kilobytes each, as parts hold no weights


@dataclass(frozen=True, eq=False)
class GroupedModel:
    """A model, at one or several shapes of its inputs, and the graph of its op groups, which a planner places."""

    models: tuple[OnnxModel, ...]
    """The same ops at every shape."""
    graph: OpGraph
    """Graph of `G` op groups; the model's own graph when nothing was coarsened."""
    group_of_op: IntArray  # [N]
    kernels: KernelModel | None = None
    """The optimised model, which parts are cut from where a placement allows it; None: parts hold the ops as they are."""
    runs_kernels: BoolArray | None = None
    """`[D]` the devices that run parts of it; needed with `kernels`."""

    @property
    def model(self) -> OnnxModel:
        """The model at the first shape, which parts are cut from."""
        return self.models[0]

    def segments(self, assignment: IntArray, order: IntArray, excludes: BoolArray | None = None) -> tuple[Segment, ...]:
        """Segments of the model's ops in a global run order near `order` `[G]`, for an assignment `[G]` of the groups.

        `excludes` `[D, D]` is true where two devices share a resource; None: none do.
        Producers run first; inside a group, ops run in topological order.
        """
        of_groups = segments(self.graph, assignment, order, excludes=excludes)
        groups = [group for segment in of_groups for group in segment.ops]
        graph = self.model.graph
        rank, position = np.argsort(groups), np.argsort(graph.topological_order)  # of permutations: their inverses
        run_order = np.lexsort((position, rank[self.group_of_op]))
        if self.kernels is not None and self.runs_kernels is not None:
            of_kernels = self.kernels.segments(assignment[self.group_of_op], run_order, excludes, self.runs_kernels)
            if of_kernels is not None:
                return of_kernels
        return segments(graph, assignment[self.group_of_op], run_order, self.model.constant_ops, excludes)

    def ops_of(self, part: Part) -> list[int]:
        """The model's ops that a part of a `PartMaker` executes."""
        if self.kernels is None or not part.optimised:
            return [*part.key]  # type: ignore[misc]
        executed = np.isin(self.kernels.kernel_of_op, part.key[1])  # type: ignore[index]
        return [int(op) for op in np.flatnonzero(executed)]


class PartMaker:
    """Cuts sets of ops out of a model; caches the parts, which share the model's weights in one file."""

    def __init__(self, model: OnnxModel | KernelModel, folder: Path) -> None:
        """Writes the weights to `folder` unless they are in files already; parts of a `KernelModel` run as they are."""
        kernels, model = (model, model.model) if isinstance(model, KernelModel) else (None, model)
        self._light, self._data_folder = light_copy(model, folder)
        self._optimised = kernels is not None
        self._custom_ops = model.custom_ops
        self._cutter = ModelCutter(self._light, keeps_order=kernels is not None)
        self._cut = lru_cache(_MAX_PARTS)(self._new_part)

    @property
    def data_files(self) -> dict[str, Path]:
        """Files of the weights that parts refer to, by the names that parts use.

        Raises:
            UnsupportedModel: a file is missing.
        """
        return external_files(self._light)

    def part(self, ops: Iterable[int], device: str, name: str) -> Part:
        """The ops as a part for a device; its key has the ops, so that a session cache finds it again.

        Raises:
            UnsupportedModel: the model cannot be cut there.
        """
        return replace(self._cut(tuple(sorted(ops))), device=device, name=name)

    def _new_part(self, ops: tuple[int, ...]) -> Part:
        part, key = self._cutter.part_in_memory(ops), (_OPTIMISED, ops) if self._optimised else ops
        return replace(
            part, key=key, data_folder=self._data_folder, custom_ops=self._custom_ops, optimised=self._optimised
        )


def measured_segments(
    graph: OpGraph,
    topology: Topology,
    op_time_s: FloatArray,
    parts: Sequence[tuple[str, Sequence[int]]],
    part_s: FloatArray,
    constant: BoolArray | None = None,
) -> list[MeasuredSegment]:
    """The parts of a placed model, each a device with its ops, and their measured seconds `[P]`.

    None when one device runs all, without hand-overs; parts without ops, which only change a layout, are left out.
    `op_time_s` is `[N, D]`. A copy counts for the first part that reads it on its device. Outputs of `constant` ops `[N]` are
    never copied.
    """
    if len({device for device, _ in parts}) < 2:
        return []
    ops_of_part = [np.array(ops, dtype=np.int64) for _, ops in parts]
    device_of_part = [topology.device_index[device] for device, _ in parts]
    part_of_op, device = np.empty((2, graph.num_ops), dtype=np.int64)
    for position, ops in enumerate(ops_of_part):
        part_of_op[ops], device[ops] = position, device_of_part[position]
    producers, readers = graph.tensor_producer[graph.consumer_tensor], graph.consumers
    is_copied = device[producers] != device[readers]
    if constant is not None:
        is_copied &= ~constant[producers]
    remote = np.flatnonzero(is_copied)
    remote = remote[np.argsort(part_of_op[readers[remote]], kind="stable")]
    copies = np.stack([graph.consumer_tensor[remote], device[readers[remote]]])
    first_reads = remote[np.unique(copies, axis=1, return_index=True)[1]]
    arrived_bytes = np.zeros(len(parts))
    np.add.at(arrived_bytes, part_of_op[readers[first_reads]], graph.tensor_bytes[graph.consumer_tensor[first_reads]])
    figures = zip(device_of_part, ops_of_part, arrived_bytes.tolist(), part_s.tolist(), strict=True)
    return [
        MeasuredSegment(topology.devices[d].kind, tuple(ops.tolist()), float(op_time_s[ops, d].sum()), arrived, seconds)
        for d, ops, arrived, seconds in figures
        if len(ops)
    ]


def model_setup(
    grouped: GroupedModel,
    maker: PartMaker,
    feeds: Sequence[Mapping[str, Any]],
    topology: Topology,
    dims_objective: DimsObjective,
) -> Setup:
    """Inputs and outputs of the model; the host's memory and that of each GPU decide how many copies of its weights are kept."""
    model = grouped.model
    graph = model.model.graph
    # No op makes an output that is a weight, so no part does.
    made = [value for value in graph.outputs if value.is_graph_input() or not value.is_initializer()]
    outputs = tuple(str(value.name) for value in made)
    read = {*maker.part(range(model.graph.num_ops), "", "").inputs, *outputs}
    on_gpus = (one.memory_bytes for one in topology.devices if parse_real(one.name).nvidia_gpu is not None)
    memory_bytes = min([available_memory_bytes(), *filter(None, on_gpus)])
    copies = memory_bytes // (8 * max(model.graph.total_weight_bytes, 1))
    return Setup(
        inputs=tuple(str(value.name) for value in graph.inputs),
        outputs=outputs,
        feeds=tuple({name: value for name, value in feed.items() if name in read} for feed in feeds),
        dims_objective=dims_objective,
        kept_jobs=int(np.clip(copies, topology.num_devices, _MAX_KEPT_JOBS)),
        loadings=4 if copies >= 4 else 2 if copies >= 2 else 1,
    )

"""What segments took when they ran beside others, next to what was expected of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.cost.measurement_store import MeasuredSegment
from gnnplace.devices.topology import Topology
from gnnplace.graph.op_graph import OpGraph
from gnnplace.onnx_io.external_data import external_files, light_copy
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.segments import Segment, segments
from gnnplace.onnx_io.split import ModelCutter, Part

__all__ = ["GroupedModel", "PartMaker", "group_order", "measured_segments", "model_segments"]


def measured_segments(
    graph: OpGraph,
    topology: Topology,
    op_time_s: FloatArray,
    parts: Sequence[Part],
    part_s: FloatArray,
    constant: BoolArray | None = None,
) -> list[MeasuredSegment]:
    """The parts of a placed model `[P]` with the seconds of each; none when all are on one device, where nobody hands over.

    `op_time_s` is `[N, D]`, each part's key its ops. A copy counts for the first part that reads it on its device; what
    `constant` ops `[N]` give is never copied.
    """
    if len({part.device for part in parts}) < 2:
        return []
    ops_of_part = [np.array(part.key, dtype=np.int64) for part in parts]
    part_of_op, device = np.empty((2, graph.num_ops), dtype=np.int64)
    for position, (part, ops) in enumerate(zip(parts, ops_of_part, strict=True)):
        part_of_op[ops], device[ops] = position, topology.device_index[part.device]
    sources, readers = graph.tensor_producer[graph.consumer_tensor], graph.consumers
    handed_over = device[sources] != device[readers]
    if constant is not None:
        handed_over &= ~constant[sources]
    remote = np.flatnonzero(handed_over)
    remote = remote[np.argsort(part_of_op[readers[remote]], kind="stable")]
    copies = np.stack([graph.consumer_tensor[remote], device[readers[remote]]])
    taken_in = remote[np.unique(copies, axis=1, return_index=True)[1]]
    arrived_bytes = np.zeros(len(parts))
    np.add.at(arrived_bytes, part_of_op[readers[taken_in]], graph.tensor_bytes[graph.consumer_tensor[taken_in]])
    return [
        MeasuredSegment(
            topology.devices[topology.device_index[part.device]].kind,
            tuple(ops.tolist()),
            float(op_time_s[ops, topology.device_index[part.device]].sum()),
            float(arrived_bytes[position]),
            float(part_s[position]),
        )
        for position, (part, ops) in enumerate(zip(parts, ops_of_part, strict=True))
    ]


_MAX_PARTS = 4096  # some kilobytes each, as they hold no weights


@dataclass(frozen=True, eq=False)
class GroupedModel:
    """A model, the graph whose placement is sought, and how the two belong together."""

    model: OnnxModel
    graph: OpGraph
    """`G` op groups; the model's own graph when nothing was coarsened."""
    group_of_op: IntArray  # [N]
    others: tuple[OnnxModel, ...] = ()
    """The same model at other sizes of its inputs."""

    @cached_property
    def ops_of_group(self) -> tuple[tuple[int, ...], ...]:
        """`[G]` the ops of each group, ascending."""
        members: list[list[int]] = [[] for _ in range(self.graph.num_ops)]
        for op, group in enumerate(self.group_of_op.tolist()):
            members[group].append(op)
        return tuple(tuple(ops) for ops in members)


def group_order(grouped: GroupedModel, assignment: IntArray, order: IntArray) -> list[int]:
    """The groups in a global run order near `order` `[G]`, producers first."""
    return [group for segment in segments(grouped.graph, assignment, order) for group in segment.ops]


def model_segments(grouped: GroupedModel, assignment: IntArray, order: Sequence[int]) -> tuple[Segment, ...]:
    """The segments of the model's ops in which a placement `[G]` of the groups runs; `order` is a `group_order`.

    Within a group, ops run in topological order.
    """
    rank = np.empty(len(order), dtype=np.int64)
    rank[list(order)] = np.arange(len(order))
    graph = grouped.model.graph
    position = np.empty(graph.num_ops, dtype=np.int64)
    position[graph.topological_order] = np.arange(graph.num_ops)
    run_order = np.lexsort((position, rank[grouped.group_of_op]))
    return segments(graph, assignment[grouped.group_of_op], run_order, grouped.model.constant_ops)


class PartMaker:
    """Cuts sets of ops out of a model; the same set is cut once, and all sets share the model's weights in one file."""

    def __init__(self, model: OnnxModel, folder: Path) -> None:
        """Writes the weights to `folder` unless they lie in files already."""
        light, self._data_folder = light_copy(model, folder)
        self._light = light
        self._custom_ops = model.custom_ops
        self._cutter = ModelCutter(light)
        self._cut = lru_cache(_MAX_PARTS)(self._cut_anew)

    @property
    def data_files(self) -> dict[str, Path]:
        """Where the weights lie that no part holds, by the names that parts have for them.

        Raises:
            UnsupportedModel: a file is missing.
        """
        return external_files(self._light)

    def part(self, ops: Iterable[int], device: str, name: str) -> Part:
        """The ops as a part for a device; its key, the ops, makes a session cache know it again.

        Raises:
            UnsupportedModel: the model cannot be cut there.
        """
        return replace(self._cut(tuple(sorted(ops))), device=device, name=name)

    def _cut_anew(self, ops: tuple[int, ...]) -> Part:
        part = self._cutter.part_in_memory(ops)
        return replace(part, key=ops, data_folder=self._data_folder, custom_ops=self._custom_ops)

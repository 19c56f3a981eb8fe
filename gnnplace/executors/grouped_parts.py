"""From op groups and placements of them to parts that a runner takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

from gnnplace.arrays import IntArray
from gnnplace.executors.dataflow import RunnerPart
from gnnplace.graph.op_graph import OpGraph
from gnnplace.onnx_io.external_data import external_files
from gnnplace.onnx_io.light_copy import light_copy
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.segments import Segment, segments
from gnnplace.onnx_io.split import ModelCutter

__all__ = ["GroupedModel", "PartMaker", "group_order", "model_segments"]

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

    def part(self, ops: Iterable[int], device: str, name: str) -> RunnerPart:
        """The ops as a part for a device; its key, the ops, makes a session cache know it again.

        Raises:
            UnsupportedModel: the model cannot be cut there.
        """
        return replace(self._cut(tuple(sorted(ops))), device=device, name=name)

    def _cut_anew(self, ops: tuple[int, ...]) -> RunnerPart:
        model, part = self._cutter.part_bytes(ops)
        return RunnerPart(
            name="",
            device="",
            model=model,
            inputs=part.inputs,
            outputs=part.outputs,
            optional_inputs=part.optional_inputs,
            key=ops,
            data_folder=self._data_folder,
            custom_ops=self._custom_ops,
        )

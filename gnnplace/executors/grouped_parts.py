"""From op groups and placements of them to parts that a runner takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from gnnplace.arrays import IntArray
from gnnplace.executors.dataflow import RunnerPart
from gnnplace.graph.op_graph import OpGraph
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.segments import Segment, segments
from gnnplace.onnx_io.split import split_model

__all__ = ["GroupedModel", "group_order", "model_segments", "written_parts"]


@dataclass(frozen=True, eq=False)
class GroupedModel:
    """A model, the graph whose placement is sought, and how the two belong together."""

    model: OnnxModel
    graph: OpGraph
    """`G` op groups; the model's own graph when nothing was coarsened."""
    group_of_op: IntArray  # [N]

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
    return segments(graph, assignment[grouped.group_of_op], np.lexsort((position, rank[grouped.group_of_op])))


def written_parts(model: OnnxModel, ops_of_part: Sequence[Sequence[int]], folder: Path) -> tuple[RunnerPart, ...]:
    """One model file per list of ops in `folder`, as parts without a device; their cache keys hold its name.

    Raises:
        UnsupportedModel: the model cannot be cut there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return tuple(
        RunnerPart(
            name=f"{folder.name} {number}",
            device="",
            model=folder / part.file,
            inputs=part.inputs,
            outputs=part.outputs,
            optional_inputs=part.optional_inputs,
            key=(folder.name, number),
        )
        for number, part in enumerate(split_model(model, ops_of_part, folder))
    )

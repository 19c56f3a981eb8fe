"""One placement on its way through a measuring process: what is executed, by whom, and what is kept of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import psutil

from gnnplace.arrays import FloatArray
from gnnplace.cost.measurement_store import MeasurementStore
from gnnplace.evaluation import DimsObjective, Evaluation
from gnnplace.measuring.grouped_parts import GroupedModel, PartMaker
from gnnplace.measuring.worker_process import Answer, Job, Setup
from gnnplace.onnx_io.split import Part
from gnnplace.placement import Placement

__all__ = ["Comparison", "Execution", "JobRunner", "Kept", "PlacementKey", "executed", "placement_key", "worker_setup"]


_MAX_KEPT_JOBS = 64

PlacementKey = tuple[bytes, bytes]
"""Equal for placements that are the same."""


@dataclass(frozen=True, eq=False)
class Kept:
    """Where measurements are kept, and what they are compared with."""

    store: MeasurementStore
    op_time_s: FloatArray  # [N, D] of the model's ops


@dataclass(frozen=True, eq=False)
class Comparison:
    """Placements measured side by side, as they will run."""

    evaluations: tuple[Evaluation, ...]
    """In the order in which they were given."""
    single: Evaluation | None
    """A plain session of the whole model on the best single device; None when no device runs it."""
    single_device: str | None


class JobRunner(Protocol):
    """Executes placed models, on this machine or on others with the same devices."""

    def answers(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Answer]]:
        """What became of each job, by its index, as it becomes known."""


@dataclass(frozen=True, eq=False)
class Execution:
    """A placement of which nothing is known yet."""

    placement: Placement
    simulated: Evaluation
    parts: tuple[Part, ...]

    @property
    def pieces(self) -> list[list[Any]]:
        """What runs where, as the store has it."""
        return [[part.device, part.key] for part in self.parts]


def placement_key(placement: Placement) -> PlacementKey:
    """Of a placement of a graph."""
    priorities = b"" if placement.priorities is None else placement.priorities.tobytes()
    return placement.assignment.tobytes(), priorities


def executed(simulated: Evaluation, seconds: float, spread_s: float, repeats: int) -> Evaluation:
    """What was simulated, with measured seconds in place of the simulated ones."""
    return dataclasses.replace(
        simulated,
        evaluator="measured",
        makespan_s=seconds,
        period_s=seconds,
        spread_s=spread_s,
        repeats=repeats,
        failure="",
    )


def worker_setup(
    grouped: GroupedModel,
    maker: PartMaker,
    feeds: Sequence[Mapping[str, Any]],
    num_devices: int,
    dims_objective: DimsObjective,
) -> Setup:
    """What the process has to know: inputs and outputs, and how many copies of the weights there is room for."""
    model = grouped.model
    graph = model.model.graph
    # No op makes an output that is a weight, so no part does.
    made = [value for value in graph.outputs if value.is_graph_input() or not value.is_initializer()]
    outputs = tuple(str(value.name) for value in made)
    read = {*maker.part(range(model.graph.num_ops), "", "").inputs, *outputs}
    room = psutil.virtual_memory().available // (4 * max(model.graph.total_weight_bytes, 1))
    given = [{name: value for name, value in feed.items() if name in read} for feed in feeds]
    return Setup(
        inputs=tuple(str(value.name) for value in graph.inputs),
        outputs=outputs,
        feed=given[0],
        other_feeds=tuple(given[1:]),
        dims_objective=dims_objective,
        kept_jobs=int(np.clip(room, num_devices, _MAX_KEPT_JOBS)),
    )

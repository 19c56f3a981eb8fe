"""The stored measurements of one model: those of its placements, and of segments."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from gnnplace.arrays import FloatArray
from gnnplace.cost.measurement_store import MeasurementStore
from gnnplace.cost.stored_runs import StoredRuns, estimated_seconds
from gnnplace.devices.topology import Topology
from gnnplace.errors import MeasurementFailed
from gnnplace.measuring.busy import measuring_conditions
from gnnplace.measuring.grouped_parts import GroupedModel, measured_segments
from gnnplace.measuring.timing import MeasureOptions
from gnnplace.onnx_io.part import Part

Parts = tuple[Part, ...]
"""The parts of one placement."""


@dataclass(frozen=True, eq=False)
class Kept:
    """Store of earlier measurements, and the profiled seconds to which it relates those of segments."""

    store: MeasurementStore
    op_time_s: FloatArray  # [N, D] of the model's ops


class StoredModel:
    """Reads and writes the measurements of one model; without a store it knows nothing and writes nothing."""

    def __init__(self, grouped: GroupedModel, topology: Topology, options: MeasureOptions, kept: Kept | None) -> None:
        self._grouped, self._topology, self._kept = grouped, topology, kept
        first, *others = (model.key for model in grouped.models)
        shapes = [options.dims_objective, *others] if others else []
        self.key = json.dumps([first, options.seed, options.requests, *shapes])
        """Everything that a measured ratio depends on, besides the machine and the pieces."""
        self.not_kept = ""
        """First write error; later writes are skipped."""
        self._conditions = measuring_conditions()

    def estimate(self, parts: Parts, reference_s: Mapping[str, float]) -> tuple[float, float, int] | None:
        """Seconds today, half the width of their interval, and the number of stored runs; see `estimated_seconds`."""
        if self._kept is None:
            return None
        stored = self._kept.store.placement_runs(self.key, pieces(parts))
        known = estimated_seconds(stored, reference_s, time.time())
        return None if known is None else (*known, sum(len(runs.candidate_s) for runs in stored))

    def add_runs(self, parts: Parts, samples: FloatArray, reference: str) -> None:
        """Adds the seconds `[2, R]` of a placement, and those of the reference in the same rounds."""
        candidate_s, reference_s = map(tuple, samples.tolist())
        runs = StoredRuns(candidate_s, reference_s, reference, self._conditions)
        self.write(lambda store: store.add_placement_runs(self.key, pieces(parts), runs))

    def add_segments(self, parts: Parts, in_profile_s: FloatArray) -> None:
        """Adds the seconds `[P]` of a placement's parts at the moment when the ops were profiled.

        Models of several shapes add none, as their seconds together describe no shape.
        """
        if self._kept is None or len(self._grouped.models) > 1:
            return
        model = self._grouped.model
        placed = [(part.device, self._grouped.ops_of(part)) for part in parts]
        segments = measured_segments(
            model.graph, self._topology, self._kept.op_time_s, placed, in_profile_s, model.constant_ops
        )
        self.write(partial(MeasurementStore.add_segments, model=model.key, segments=segments))

    def write(self, add: Callable[[MeasurementStore], None]) -> None:
        """Writes to the store; a write error does not end the search."""
        if self._kept is not None and not self.not_kept:
            try:
                add(self._kept.store)
            except MeasurementFailed as error:
                self.not_kept = str(error)


def pieces(parts: Sequence[Part]) -> list[object]:
    """Device and ops of each part: the key of a placement in the store."""
    return [[part.device, part.key] for part in parts]

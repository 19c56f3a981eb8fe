"""What segments took when they ran beside others, next to what was expected of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnnplace.arrays import BoolArray, FloatArray
from gnnplace.cost.measurement_store import MeasuredSegment
from gnnplace.devices.topology import Topology
from gnnplace.executors.dataflow import RunnerPart
from gnnplace.graph.op_graph import OpGraph

__all__ = ["measured_segments"]


def measured_segments(
    graph: OpGraph,
    topology: Topology,
    op_time_s: FloatArray,
    parts: Sequence[RunnerPart],
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

"""Seconds of ops on a provider whose profile shows no single ops, as it may compile a whole subgraph into one kernel."""

from collections.abc import Sequence
from itertools import chain, pairwise

import numpy as np

from gnnplace.arrays import FloatArray
from gnnplace.cost.cost_model import RooflineCost
from gnnplace.devices.spec import load_topology
from gnnplace.measuring.grouped_parts import PartMaker
from gnnplace.measuring.timing import StoppingRule
from gnnplace.measuring.worker_process import Job, WorkerProcess
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.segments import segments
from gnnplace.running.optimised import optimised

_MAX_PARTS = 200  # a session takes some 50 ms to compile
_LEAST_SHARE = 0.02  # of the seconds of a part whose work is no longer than a call takes


def measured_shares(
    model: OnnxModel, device_name: str, maker: PartMaker, worker: WorkerProcess, rule: StoppingRule
) -> FloatArray:
    """`[N]` seconds of each op, to be scaled to those of the whole session: parts of the model run one after the other.

    A part holds the ops that ONNX Runtime's own kernels fuse, as other libraries fuse much the same; with more than 200 kernels,
    it holds several. Its seconds are those of its session without a call, which are those of the fastest part. The ops of a part
    share them in proportion to their roofline. Where the parts cannot run, the roofline divides the whole model.
    """
    graph = model.graph
    everywhere, unknown = np.ones(graph.num_ops, dtype=np.bool_), np.full(graph.num_ops, np.nan)
    (published,) = load_topology(device_name).devices
    op_s = RooflineCost().completed(graph, published, unknown, everywhere)
    kernels = optimised(model)
    kernel_of_op = np.arange(graph.num_ops) if kernels is None else kernels.kernel_of_op
    found = segments(graph, kernel_of_op, graph.topological_order, model.constant_ops)
    of_parts = _at_most(_MAX_PARTS, [segment.ops for segment in found])
    parts = tuple(maker.part(ops, device_name, f"part {number}") for number, ops in enumerate(of_parts))
    answer = worker.run(Job((parts,), rule))
    (part_s,) = answer.part_s or (np.zeros(0),)
    if len(part_s) != len(of_parts):
        return op_s
    for ops, share_s in zip(of_parts, np.maximum(part_s - part_s.min(), _LEAST_SHARE * part_s).tolist(), strict=True):
        op_s[list(ops)] *= share_s / max(op_s[list(ops)].sum(), 1e-12)
    return op_s


def _at_most(count: int, sets: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The sets, or neighbours of them joined into `count` sets; neighbours of a topological order have no cycle between them."""
    ends = np.linspace(0, len(sets), min(count, len(sets)) + 1).round().astype(np.int64)
    return [tuple(chain.from_iterable(sets[begin:end])) for begin, end in pairwise(ends.tolist())]

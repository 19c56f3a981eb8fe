"""What another provider does with a model: whether it runs it, and the seconds of its ops, which its profile does not show."""

from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnplace.arrays import FloatArray
from gnnplace.cost.cost_model import RooflineCost
from gnnplace.devices.spec import load_topology
from gnnplace.files import temporary_folder
from gnnplace.measuring.grouped_parts import PartMaker
from gnnplace.measuring.timing import StoppingRule
from gnnplace.measuring.worker_process import Job, Setup, WorkerProcess
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.part import Part
from gnnplace.onnx_io.sample_inputs import probe_model
from gnnplace.onnx_io.segments import segments
from gnnplace.running.optimised import optimised

_ONCE = StoppingRule(warmup=0, min_repeats=1, max_repeats=1)
_TIMEOUT_S = 300.0
_MAX_PARTS = 200  # a session takes some 50 ms to compile
_LEAST_SHARE = 0.02  # of the seconds of a part whose work is no longer than a call takes


def refusal(model: OnnxModel, device_name: str, inputs: Mapping[str, NDArray[Any]]) -> str | None:
    """Why a device does not run a model, which an isolated process tries once; None where it does."""
    with temporary_folder() as folder:
        part = whole_model(PartMaker(model, folder), model, device_name)
        with process_for(part, inputs, _TIMEOUT_S) as worker:
            return worker.run(Job(((part,),), _ONCE)).failure or None


def small_model_refusal(device_name: str) -> str | None:
    """Why a device does not run a model of one op, which an isolated process tries once; None where it does."""
    part = Part("small model", device_name, probe_model(4, "x", "y"), ("x",), ("y",))
    with process_for(part, {"x": np.ones(4, dtype=np.float32)}, _TIMEOUT_S) as worker:
        return worker.run(Job(((part,),), _ONCE)).failure or None


def whole_model(maker: PartMaker, model: OnnxModel, device_name: str) -> Part:
    """A model in one part on a device."""
    return maker.part(range(model.graph.num_ops), device_name, "the whole model")


def process_for(part: Part, inputs: Mapping[str, NDArray[Any]], timeout_s: float) -> WorkerProcess:
    """A process that runs a model, or parts of it, with its inputs, and keeps no sessions."""
    feed = {key: inputs[key] for key in part.inputs}
    return WorkerProcess(Setup(part.inputs, part.outputs, (feed,), kept_jobs=0), timeout_s)


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

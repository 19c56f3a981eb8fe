"""`gnnplace bench gpu`: placed models on a GPU, on its halves, and beside CPU cores, in outputs and in seconds.

Outputs are compared with those of a plain session on CPU cores, so the GPU computes in full FP32 there (`use_tf32=0`). Seconds are
ratios to a plain CUDA session that ran in the same rounds, with ONNX Runtime's defaults. The placements cut the model at
random: they test hand-overs and are not meant to be fast, except `whole`, which is the GPU alone. The details have the overheads
of a part and of hand-overs between the devices.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from gnnplace.api import ProblemSetup, set_up
from gnnplace.api.workload import load_workload
from gnnplace.arrays import IntArray
from gnnplace.bench.harness import BenchOptions, BenchResult, matching, run_cases
from gnnplace.bench.problems import worst_error, write_placed
from gnnplace.devices.cuda_driver import gpus
from gnnplace.devices.detect import allowed_cores, halves
from gnnplace.devices.real_names import cores_together
from gnnplace.errors import GnnplaceError
from gnnplace.files import temporary_folder
from gnnplace.measuring.link_probe import dispatch_overhead_s, probe_link, probing_process
from gnnplace.measuring.plain_session import PlainSession
from gnnplace.measuring.timing import StoppingRule, interleaved, median_interval
from gnnplace.onnx_io.sample_inputs import sample_inputs
from gnnplace.placement import Placement
from gnnplace.running.devices import cuda_is_offered
from gnnplace.running.session import Session

MODELS = (
    "light_squeezenet", "light_shufflenet", "light_inception_v1", "light_inception_v2", "inception_v3:batch=1",
    "cifar_cell_00:batch=8", "ensemble_cnn:batch=2", "ensemble_mlp", "dlrm_towers:batch=64",
    "nmt_2:batch=16:hidden=512:steps=6:vocabulary=4000", "ptb_cell_00:batch=8", "bert_base:layers=2:batch=1",
    "cifar_cell_00:batch=8:training", "ensemble_mlp:training",
)  # fmt: skip
"""Zoo models of few operations, where overheads show; the last two are training steps."""
COLUMNS = (
    "model", "devices", "placement", "segments", "relative_error", "ratio_to_plain", "measured_s", "plain_gpu_s", "plain_cpu_s",
)  # fmt: skip
WHOLE, EQUAL = "whole", 1e-3
"""The placement on the GPU alone; and the largest error of an output, as a fraction of its largest value, that counts as rounding."""
_SEGMENTS = (8, 60)
_GPU, _BY_DEFAULT = "cuda:0", "cuda:0[own_stream=1]"
_RULE = StoppingRule(warmup=3, min_repeats=15, max_repeats=150, max_s=1.0, relative_spread=0.005)


@dataclass(frozen=True)
class GpuCase:
    """One model on every device set."""

    model: str
    seed: int


def bench_gpu(options: BenchOptions) -> BenchResult:
    """A row per model, device set and placement; overheads in the details.

    Raises:
        GnnplaceError: no GPU can be used.
    """
    if not (cuda_is_offered() and gpus()):
        raise GnnplaceError(
            "bench gpu: there is no GPU that ONNX Runtime can use; gnnplace doctor says what is missing"
        )
    models = matching({model: model for model in MODELS}, options.only, "model")
    found = run_cases([GpuCase(model, options.seed) for model in models], gpu_result, options, _progress)
    rows = [{"model": case.model, **row} for case, result in found.items() for row in result["rows"]]
    details = {"gpu": gpus()[0].name, "overheads": overheads()}
    return BenchResult("gpu", options, rows, gpu_summary(rows), details, COLUMNS)


def _progress(case: GpuCase, result: Mapping[str, Any]) -> str:
    worst = max(row["relative_error"] for row in result["rows"])
    (alone,) = (row["ratio_to_plain"] for row in result["rows"] if row["placement"] == WHOLE)
    return f"{case.model}: worst relative error {worst:.1e}, placed on the GPU alone {alone:.3f} of a plain session"


def device_sets(option: str = "") -> dict[str, str]:
    """The GPU alone, two cores with it, and its two halves; `option` is one of the GPU's session."""
    whole = f"{_GPU}[{option}]" if option else _GPU
    cores = ",".join(f"cpu:{core}" for core in allowed_cores()[:2])
    return {"gpu": whole, "cores and gpu": f"{cores},{whole}", "halves": ",".join(halves(0, option))}


def gpu_result(case: GpuCase) -> dict[str, Any]:
    """A row per device set and placement."""
    rng, rows = np.random.default_rng(case.seed), []
    (model,) = load_workload(f"zoo:{case.model}", to_run=True).models
    feed = sample_inputs(model, rng)
    plain_cpu, plain_gpu = (PlainSession(model.path, name) for name in (cores_together(allowed_cores()), _BY_DEFAULT))
    expected = plain_cpu.run(feed)
    cpu_s = float(np.median(interleaved([partial(plain_cpu.run, feed)], _RULE, rng)))
    by_default = device_sets()
    for name, devices in device_sets("use_tf32=0").items():
        exact, fast = set_up(model, devices), set_up(model, by_default[name])
        order = exact.workload.graph.topological_order
        for label, assignment in _placements(exact, rng).items():
            with temporary_folder() as folder, ExitStack() as stack:
                segments = write_placed(exact, assignment, folder / "exact", order)
                with Session(folder / "exact") as session:
                    error = worst_error(session.run(None, feed), expected)
                write_placed(fast, assignment, folder / "fast", order)
                placed = stack.enter_context(Session(folder / "fast"))
                calls = [partial(placed.run, None, feed), partial(plain_gpu.run, feed)]
                placed_s, gpu_s = interleaved(calls, _RULE, rng)
            ratio = median_interval(placed_s / gpu_s)
            rows.append(
                {
                    "devices": name,
                    "placement": label,
                    "segments": segments,
                    "relative_error": error,
                    "ratio_to_plain": ratio.median,
                    "ratio_spread": ratio.spread,
                    "measured_s": float(np.median(placed_s)),
                    "plain_gpu_s": float(np.median(gpu_s)),
                    "plain_cpu_s": cpu_s,
                    "repeats": len(placed_s),
                }
            )
    return {"rows": rows}


def _placements(setup: ProblemSetup, rng: np.random.Generator) -> dict[str, IntArray]:
    """Assignments `[N]` of ops: the whole model on the only device, or stretches of the topological order at random.

    Each has about as many segments as its label says at most: where stretches would have more, a window of ops moves to the
    other device instead, and is halved until few enough values cross.
    """
    graph, devices = setup.workload.graph, setup.topology.num_devices
    if devices == 1:
        return {WHOLE: np.zeros(graph.num_ops, dtype=np.int64)}
    order, found = graph.topological_order, {}
    for most in _SEGMENTS:
        assignment, window = np.empty(graph.num_ops, dtype=np.int64), graph.num_ops
        assignment[order] = rng.integers(0, devices, most)[np.arange(graph.num_ops) * most // graph.num_ops]
        while window > 1 and len(setup.segments(Placement(assignment), order)) > most + 2:
            window //= 2
            begin = rng.integers(0, graph.num_ops - window + 1)
            assignment = np.full(graph.num_ops, devices - 1)
            assignment[order[begin : begin + window]] = 0
        found[f"{most} segments"] = assignment
    return found


def overheads() -> dict[str, Any]:
    """Seconds of one more part on each device, and latency and bandwidth of hand-overs between devices."""
    first, second = halves(0)
    core, other = (f"cpu:{core}" for core in allowed_cores()[:2])
    with probing_process() as worker:
        parts = {device: dispatch_overhead_s(device, worker) for device in (core, _GPU, first)}
        pairs = [(core, other), (core, _GPU), (first, second), (core, first)]
        links = {f"{a} - {b}": asdict(probe_link(a, b, worker)) for a, b in pairs}
    return {"part_s": parts, "links": links}


def gpu_summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Numbers of equal placements, and the overhead of a placement on the GPU alone."""
    alone = {row["model"]: row["ratio_to_plain"] - 1.0 for row in rows if row["placement"] == WHOLE}
    sets = dict.fromkeys(row["devices"] for row in rows)
    of_sets = {name: [row["relative_error"] for row in rows if row["devices"] == name] for name in sets}
    return {
        "models": len(alone),
        "placements": len(rows),
        "equal": {name: sum(error <= EQUAL for error in errors) for name, errors in of_sets.items()},
        "of": {name: len(errors) for name, errors in of_sets.items()},
        "worst_relative_error": max(row["relative_error"] for row in rows),
        "gpu_alone_overhead_median": float(np.median(list(alone.values()))),
        "gpu_alone_overhead_worst": max(alone.values()),
        "faster_on_the_gpu_than_on_all_cores": sum(
            row["plain_gpu_s"] < row["plain_cpu_s"] for row in rows if row["placement"] == WHOLE
        ),
    }

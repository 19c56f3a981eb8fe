"""A model cut in half, run in this process, in one process of another host, and over two hosts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gnnplace.api.workload import Workload
from gnnplace.distributed.cluster import nodes
from gnnplace.distributed.execution import DistributedSession
from gnnplace.distributed.host_devices import probe_host_links
from gnnplace.files import temporary_folder
from gnnplace.measuring.timing import StoppingRule, interleaved, run_pipelined
from gnnplace.onnx_io.manifest import write_parts
from gnnplace.onnx_io.read import read_onnx
from gnnplace.onnx_io.sample_inputs import sample_inputs
from gnnplace.running.session import PARTS, Session

__all__ = ["MODELS", "measured_sessions"]

MODELS = ("squeezenet", "inception_v2")
_SETUPS = {
    "local": ("cpu:0", "cpu:1"),
    "one_host": ("host1/cpu:0", "host1/cpu:1"),
    "two_hosts": ("host1/cpu:0", "host2/cpu:1"),
}
_RULE = StoppingRule(warmup=3, min_repeats=30, max_repeats=30)
_REQUESTS = 10
_PIPELINED_RULE = StoppingRule(warmup=1, min_repeats=8, max_repeats=8)


def measured_sessions(address: str, seed: int, report: Callable[[str], None]) -> dict[str, Any]:
    """Seconds per request, alone and for ten pipelined requests, measured in turns; and differences to the local outputs.

    The first half of the ops, in topological order, is on one device and the rest on the other. Both hosts, `host1` and
    `host2`, are on this machine, so that their links show the cost of Ray without a network.
    """
    one, other = nodes()
    link = probe_host_links([(one, other)])[one.name, other.name]
    models: dict[str, Any] = {}
    for name in MODELS:
        with temporary_folder() as folder:
            models[name] = _measured(name, folder, address, seed)
        alone = models[name]["alone_s"]
        report(", ".join([name, *(f"{setup} {1e3 * alone[setup]:.1f} ms" for setup in _SETUPS)]))
    return {"latency_s": link.latency_s, "bandwidth_bytes_per_s": link.bandwidth_bytes_per_s, "models": models}


def _measured(name: str, folder: Path, address: str, seed: int) -> dict[str, Any]:
    from models_zoo.networks.light import write_light_model

    write_light_model(name, folder / "model.onnx", seed)
    model = read_onnx(folder / "model.onnx")
    order = model.graph.topological_order
    assignment = np.zeros(model.graph.num_ops, dtype=np.int64)
    assignment[order[len(order) // 2 :]] = 1
    cut = Workload.of(model).segments(assignment, order)
    feed = sample_inputs(model, np.random.default_rng(seed))
    with ExitStack() as stack:
        sessions: dict[str, Session | DistributedSession] = {}
        for setup, devices in _SETUPS.items():
            write_parts(model, cut, devices, folder / setup / PARTS)
            opened = (
                Session(folder / setup) if setup == "local" else DistributedSession(folder / setup, address, share=0.5)
            )
            sessions[setup] = stack.enter_context(opened)
        outputs = {setup: session.run(None, feed) for setup, session in sessions.items()}
        alone = interleaved([partial(session.run, None, feed) for session in sessions.values()], _RULE)
        pipelined = interleaved(
            [partial(run_pipelined, session, feed, _REQUESTS) for session in sessions.values()], _PIPELINED_RULE
        )
    return {
        "segments": len(cut),
        "alone_s": dict(zip(sessions, np.median(alone, axis=1).tolist(), strict=True)),
        "pipelined_s": dict(zip(sessions, (np.median(pipelined, axis=1) / _REQUESTS).tolist(), strict=True)),
        "largest_difference": {
            setup: max(
                float(np.abs(got - expected).max()) for got, expected in zip(values, outputs["local"], strict=True)
            )
            for setup, values in outputs.items()
        },
    }

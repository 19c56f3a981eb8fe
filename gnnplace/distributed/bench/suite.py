"""`gnnplace bench ray`: all measurements, and a simulation with their costs of a driver and up to 1,000 hosts.

A placed model runs in this process, in one process of another host, and over two hosts.
"""

import dataclasses
import heapq
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gnnplace.api.workload import Workload
from gnnplace.bench.harness import BenchOptions, BenchResult
from gnnplace.distributed.bench.costs import DEVICES, WORKLOAD, MessageCosts, measured_costs, measured_speed_up
from gnnplace.distributed.cluster import nodes
from gnnplace.distributed.execution import DistributedSession
from gnnplace.distributed.host_devices import probe_host_links
from gnnplace.distributed.raylets import local_cluster
from gnnplace.files import temporary_folder
from gnnplace.measuring.timing import StoppingRule, interleaved, run_pipelined
from gnnplace.onnx_io.manifest import write_parts
from gnnplace.onnx_io.read import read_onnx
from gnnplace.onnx_io.sample_inputs import sample_inputs
from gnnplace.running.session import PARTS, Session
from gnnplace.versions import installed_versions

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
    rng = np.random.default_rng(seed)
    feed = sample_inputs(model, rng)
    with ExitStack() as stack:
        sessions: dict[str, Session | DistributedSession] = {}
        for setup, devices in _SETUPS.items():
            write_parts(model, cut, devices, folder / setup / PARTS)
            open_session = Session if setup == "local" else partial(DistributedSession, ray=address, share=0.5)
            sessions[setup] = stack.enter_context(open_session(folder / setup))
        outputs = {setup: session.run(None, feed) for setup, session in sessions.items()}
        alone = interleaved([partial(session.run, None, feed) for session in sessions.values()], _RULE, rng)
        many = [partial(run_pipelined, session, feed, _REQUESTS) for session in sessions.values()]
        pipelined = interleaved(many, _PIPELINED_RULE, rng)
    return {
        "segments": len(cut),
        "alone_s": dict(zip(sessions, np.median(alone, axis=1).tolist(), strict=True)),
        "pipelined_s": dict(zip(sessions, (np.median(pipelined, axis=1) / _REQUESTS).tolist(), strict=True)),
        "largest_difference": {
            setup: max(float(np.abs(a - b).max()) for a, b in zip(values, outputs["local"], strict=True))
            for setup, values in outputs.items()
        },
    }


_HOSTS = (1, 10, 100, 1000)
_BATCHES = (1, 8, 64)
_EVALUATION_S = 0.05
_ROW_BYTES = 512
_TURNS, _WARM = 40, 10
_STORE_BYTES = 1_000_000_000
COLUMNS = ("hosts", "batch", "evaluations_per_s", "efficiency", "driver_busy", "messages_per_s", "network_bytes_per_s")


def bench_ray(options: BenchOptions) -> BenchResult:
    """Measures one host and two on this machine, and a placed model over them; simulates up to 1,000 hosts of one worker each.

    The simulated evaluations take 50 ms and place 512 groups, a byte each.

    Raises:
        MissingDependency: Ray is not installed.
    """
    report = options.on_progress
    with local_cluster(num_hosts=1, store_bytes=_STORE_BYTES) as cluster:
        costs = measured_costs(report)
        speed_up = measured_speed_up(cluster, options.seed, report)
        cluster.add("host2")
        sessions = measured_sessions(cluster.address, options.seed, report)
    # A simulated item costs more than an empty one, as caches are cold and threads asleep.
    working = dataclasses.replace(costs, round_trip_s=max(costs.round_trip_s, speed_up["overhead_s"]))
    rows = [grown(working, hosts, batch, _EVALUATION_S, _ROW_BYTES) for batch in _BATCHES for hosts in _HOSTS]
    rounds = speed_up.pop("rounds")
    summary = {
        "ray": installed_versions("ray")["ray"],
        "workload": WORKLOAD,
        "devices": DEVICES,
        **speed_up,
        **dataclasses.asdict(costs),
        **{
            f"hosts_that_saturate_the_driver_batch_{batch}": int(batch * _EVALUATION_S / costs.item_s)
            for batch in _BATCHES  # answers of this many workers arrive as fast as the driver can take them together
        },
    }
    return BenchResult("ray", options, rows, summary, {"rounds": rounds, "sessions": sessions}, COLUMNS)


def grown(costs: MessageCosts, hosts: int, batch: int, evaluation_s: float, row_bytes: int) -> dict[str, Any]:
    """Throughput of a driver with hosts of one worker, each with one item of `batch` evaluations at a time.

    A worker receives the next item when the driver has taken its answer. The driver's loop wakes when an answer arrives, looks
    once for all answers, at a cost for each running item, then takes them and sends the same number of items. An item travels for the
    rest of a round trip. All evaluations take equally long, and the workers' first items begin one after the other. Counting
    begins after ten items per worker. `efficiency` is the share of the throughput without a driver, and `driver_busy` the
    share of the time in which the driver's loop is busy.
    """
    work_s = batch * evaluation_s
    away_s = work_s + max(0.0, costs.round_trip_s - costs.item_s - costs.wait_s)
    arrivals = [index * work_s / hosts for index in range(hosts)]
    now_s = busy_s = begin_s = 0.0
    items = 0
    while items < _TURNS * hosts:
        if begin_s == 0.0 and items >= _WARM * hosts:  # the warm-up ends here
            begin_s, busy_s, items = now_s, 0.0, 0
        now_s = max(now_s, arrivals[0])
        came = 0
        while arrivals and arrivals[0] <= now_s:
            heapq.heappop(arrivals)
            came += 1
        turn_s = costs.wait_s + costs.wait_each_s * hosts
        for taken in range(1, came + 1):
            heapq.heappush(arrivals, now_s + turn_s + taken * costs.item_s + away_s)
        turn_s += came * costs.item_s
        now_s, busy_s, items = now_s + turn_s, busy_s + turn_s, items + came
    per_s = items / (now_s - begin_s)
    item_bytes = costs.bytes_per_item + costs.bytes_per_payload_byte * batch * row_bytes
    return {
        "hosts": hosts,
        "batch": batch,
        "evaluations_per_s": per_s * batch,
        "efficiency": per_s * batch * evaluation_s / hosts,
        "driver_busy": busy_s / (now_s - begin_s),
        "messages_per_s": 2 * per_s,
        "network_bytes_per_s": item_bytes * per_s,
        "driver_s_per_evaluation": busy_s / (items * batch),
    }

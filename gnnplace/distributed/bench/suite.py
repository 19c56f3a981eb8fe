"""`gnnplace bench ray`: all measurements and the projection."""

from __future__ import annotations

import dataclasses

from gnnplace.bench.harness import BenchOptions, BenchResult
from gnnplace.distributed.bench.costs import DEVICES, WORKLOAD, measured_costs, measured_speed_up
from gnnplace.distributed.bench.growth import grown, saturating_hosts
from gnnplace.distributed.bench.sessions import measured_sessions
from gnnplace.distributed.raylets import local_cluster
from gnnplace.versions import installed_versions

__all__ = ["bench_ray"]

_HOSTS = (1, 10, 100, 1000)
_BATCHES = (1, 8, 64)
_EVALUATION_S = 0.05
_ROW_BYTES = 512
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
    working = dataclasses.replace(costs, round_trip_s=max(costs.round_trip_s, speed_up.overhead_s))
    rows = [
        {"hosts": growth.workers, **{key: value for key, value in vars(growth).items() if key != "workers"}}
        for batch in _BATCHES
        for hosts in _HOSTS
        for growth in [grown(working, hosts, batch, _EVALUATION_S, _ROW_BYTES)]
    ]
    summary = {
        "ray": installed_versions("ray")["ray"],
        "workload": WORKLOAD,
        "devices": DEVICES,
        **{key: value for key, value in dataclasses.asdict(speed_up).items() if key != "rounds"},
        "two_hosts_to_one": speed_up.two_hosts_per_s / speed_up.one_host_per_s,
        **dataclasses.asdict(costs),
        **{
            f"hosts_that_saturate_the_driver_batch_{batch}": saturating_hosts(costs, batch, _EVALUATION_S)
            for batch in _BATCHES
        },
    }
    details = {"rounds": speed_up.rounds, "sessions": sessions}
    return BenchResult("ray", options, rows, summary, details, COLUMNS)

"""Measurements on a cluster of this machine: evaluations per second with one host and with two, and costs of messages."""

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import psutil

from gnnplace.api import set_up
from gnnplace.arrays import FloatArray
from gnnplace.distributed.evaluators import Rows
from gnnplace.distributed.pool import Pool, turn_s
from gnnplace.distributed.raylets import LocalCluster
from gnnplace.distributed.workers import PoolOptions, Role
from gnnplace.evaluation import Evaluator

WORKLOAD, DEVICES = "zoo:random_dag_200000", "k40x4"
_ROUNDS = 3
_PER_HOST = 40
_EMPTY = 4000
_WORKERS = 4
_ONE_BY_ONE = 300
_PAYLOADS = (0, 16_384)
_REFERENCES = (1, 1000)
_IDLE_S = 5.0


@dataclass(frozen=True)
class MessageCosts:
    """Costs of an item without work; each item is two messages, there and back."""

    round_trip_s: float
    """Seconds of an item when the driver sends one at a time."""
    item_s: float
    """Wall seconds per item with four workers on this machine, which keep the driver's loop busy."""
    driver_cpu_s: float
    """CPU seconds per item of the driver's process, all threads."""
    ray_cpu_s: float
    """CPU seconds per item of Ray's own processes."""
    bytes_per_item: float
    """Bytes on the network, there and back."""
    bytes_per_payload_byte: float
    packets_per_item: float
    wait_s: float
    """Seconds to look for answers while one item runs."""
    wait_each_s: float
    """Additional seconds per further running item."""


def measured_speed_up(cluster: LocalCluster, seed: int, report: Callable[[str], None]) -> dict[str, Any]:
    """Evaluations per second of a cluster of one host, in turns with the same cluster and a second host.

    Each message holds one evaluation. `evaluation_s` are its median seconds on one host, `evaluation_of_two_s` those while both
    hosts work, as they share this machine's memory. `overhead_s` is the rest of the seconds per evaluation on one host.
    """
    problem = dataclasses.replace(set_up(WORKLOAD, DEVICES), num_threads=1).problem()
    rng = np.random.default_rng(seed)
    shape = (2 * _PER_HOST, 1, problem.graph.num_ops)
    items: list[Rows] = list(rng.integers(0, problem.topology.num_devices, shape).astype(np.uint8))
    rounds, alone, both_s = list[tuple[float, float]](), list[tuple[float, float]](), list[float]()
    expected: list[list[float]] = []
    pool: Pool[Rows, tuple[float, list[float]]]
    with Pool(Role(partial, (_simulate, problem.evaluator)), PoolOptions(copy_after=1e9)) as pool:
        for _ in range(_ROUNDS):
            wall_s, one = _timed_map(pool, items[:_PER_HOST])
            alone.append((wall_s / len(one), statistics.mean(seconds for seconds, _ in one)))
            second = cluster.add("host2")
            try:
                pool.wait_ready()
                both_wall_s, both = _timed_map(pool, items)
            finally:
                cluster.remove(second)
            both_s += [seconds for seconds, _ in both]
            expected = expected or [makespans for _, makespans in both]
            assert [makespans for _, makespans in one] == expected[:_PER_HOST]
            rounds.append((len(one) / wall_s, len(both) / both_wall_s))
            report(f"{rounds[-1][0]:.2f} evaluations/s on one host, {rounds[-1][1]:.2f} on two")
    one_per_s, two_per_s = (statistics.median(column) for column in zip(*rounds, strict=True))
    return {
        "evaluation_s": statistics.median(mean_s for _, mean_s in alone),
        "evaluation_of_two_s": statistics.median(both_s),
        "one_host_per_s": one_per_s,
        "two_hosts_per_s": two_per_s,
        "overhead_s": statistics.median(each_s - mean_s for each_s, mean_s in alone),
        "two_hosts_to_one": two_per_s / one_per_s,
        "rounds": rounds,
    }


def measured_costs(report: Callable[[str], None]) -> MessageCosts:
    """Costs of messages on the cluster that this process is connected to."""
    pool: Pool[Any, int]
    with Pool(_ECHO, PoolOptions(copy_after=1e9)) as pool:
        _timed_map(pool, [b""] * 100)
        one_by_one_s = [_timed_map(pool, [b""], warm=False)[0] for _ in range(_ONE_BY_ONE)]
        report(f"round trip {1e3 * statistics.median(one_by_one_s):.2f} ms")
        one_s, many_s = (turn_s(pool, count, b"sleep") for count in _REFERENCES)
    with Pool(_ECHO, PoolOptions(per_host=_WORKERS, copy_after=1e9)) as pool:
        _timed_map(pool, [b""] * 1000)
        before = _counters()
        time.sleep(_IDLE_S)
        idle_per_s = (_counters() - before) / _IDLE_S
        walls_s, counted = [], []
        for payload in _PAYLOADS:
            before = _counters()
            wall_s, _ = _timed_map(pool, [bytes(payload)] * _EMPTY, warm=False)
            walls_s.append(wall_s)
            counted.append((_counters() - before - [0, *idle_per_s[1:] * wall_s]) / _EMPTY)
    driver_s, ray_s, sent_bytes, packets = counted[0].tolist()
    return MessageCosts(
        round_trip_s=statistics.median(one_by_one_s),
        item_s=walls_s[0] / _EMPTY,
        driver_cpu_s=driver_s,
        ray_cpu_s=ray_s,
        bytes_per_item=sent_bytes,
        bytes_per_payload_byte=float(counted[1][2] - sent_bytes) / (_PAYLOADS[1] - _PAYLOADS[0]),
        packets_per_item=packets,
        wait_s=one_s,
        wait_each_s=(many_s - one_s) / (_REFERENCES[1] - _REFERENCES[0]),
    )


def _timed_map(pool: Pool[Any, Any], items: Sequence[Any], warm: bool = True) -> tuple[float, list[Any]]:
    """Wall seconds and the results of items, after some items to warm up each worker."""
    if warm:
        pool.wait_ready()
        pool.map(items[: 3 * pool.num_workers])
    begin_s = time.perf_counter()
    done = pool.map(items)
    return time.perf_counter() - begin_s, [one.value for one in done]


def _counters() -> FloatArray:
    """CPU seconds of the driver and of Ray's own processes, and bytes and packets that this machine sent to itself."""
    network: Mapping[str, Any] = psutil.net_io_counters(pernic=True)
    others = map(_cpu_s, psutil.Process().children(recursive=True))
    return np.array([time.process_time(), sum(others), network["lo"].bytes_sent, network["lo"].packets_sent])


def _cpu_s(process: psutil.Process) -> float:
    """CPU seconds of gcs_server and raylets; 0 for workers."""
    try:
        times = process.cpu_times()
        return float(times.user + times.system) if process.name() in ("gcs_server", "raylet") else 0.0
    except psutil.NoSuchProcess:
        return 0.0


def _simulate(evaluator: Evaluator, rows: Rows) -> tuple[float, list[float]]:
    """Seconds of the simulation, and makespans."""
    begin_s = time.perf_counter()
    batch = evaluator.evaluate_batch(rows.astype(np.int64))
    return time.perf_counter() - begin_s, batch.makespan_s.tolist()


def _answer(item: object) -> int:
    """Returns at once, but after a minute for `b"sleep"`."""
    if item == b"sleep":
        time.sleep(60.0)
    return 0


_ECHO = Role(partial, (_answer,))

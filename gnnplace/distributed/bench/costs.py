"""Measurements on a cluster of this machine: evaluations per second with one host and with two, and costs of messages."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import psutil

from gnnplace.api.problem_setup import ProblemSetup, topology_of
from gnnplace.api.workload import load_workload
from gnnplace.distributed.evaluators import Rows
from gnnplace.distributed.pool import Done, Pool, PoolOptions, turn_s
from gnnplace.distributed.raylets import LocalCluster
from gnnplace.distributed.workers import Role, WorkerOptions
from gnnplace.evaluation import Evaluator

__all__ = ["MessageCosts", "SpeedUp", "measured_costs", "measured_speed_up"]

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
class SpeedUp:
    """Evaluations per second, with one simulation per message."""

    evaluation_s: float
    """Median seconds of one evaluation in the worker of one host."""
    evaluation_of_two_s: float
    """The same while both hosts work, as they share this machine's memory."""
    one_host_per_s: float
    two_hosts_per_s: float
    overhead_s: float
    """Seconds per evaluation on one host, besides the evaluation itself."""
    rounds: tuple[tuple[float, float], ...]
    """Evaluations per second of one host and of two, measured in turns."""


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
    """Seconds to look for answers when one item is out."""
    wait_each_s: float
    """Additional seconds per further item that is out."""


def measured_speed_up(cluster: LocalCluster, seed: int, report: Callable[[str], None]) -> SpeedUp:
    """Evaluations per second of a cluster of one host, in turns with the same cluster and a second host."""
    setting = dataclasses.replace(ProblemSetup.build(load_workload(WORKLOAD), topology_of(DEVICES)), num_threads=1)
    problem = setting.problem()
    rng = np.random.default_rng(seed)
    shape = (2 * _PER_HOST, 1, problem.graph.num_ops)
    items: list[Rows] = list(rng.integers(0, problem.topology.num_devices, shape).astype(np.uint8))
    rounds: list[tuple[float, float]] = []
    alone: list[tuple[float, float]] = []
    both_s: list[float] = []
    pool: Pool[Rows, tuple[float, list[float]]]
    with Pool(Role(_timed_simulation, (problem.evaluator,)), PoolOptions(copy_after=1e9)) as pool:
        expected: list[list[float]] = []
        for _ in range(_ROUNDS):
            wall_s, done = _timed_map(pool, items[:_PER_HOST])
            took_s = [one.value[0] for one in done if one.value is not None]
            alone += [(wall_s / len(done), statistics.mean(took_s))]
            second = cluster.add("host2")
            try:
                pool.wait_ready()
                both_wall_s, both = _timed_map(pool, items)
            finally:
                cluster.remove(second)
            both_s += [one.value[0] for one in both if one.value is not None]
            expected = expected or [one.value[1] for one in both if one.value is not None]
            assert [one.value[1] for one in done if one.value is not None] == expected[:_PER_HOST]
            rounds.append((len(done) / wall_s, len(both) / both_wall_s))
            report(f"{rounds[-1][0]:.2f} evaluations/s on one host, {rounds[-1][1]:.2f} on two")
    return SpeedUp(
        statistics.median(mean_s for _, mean_s in alone),
        statistics.median(both_s),
        statistics.median(one for one, _ in rounds),
        statistics.median(two for _, two in rounds),
        statistics.median(each_s - mean_s for each_s, mean_s in alone),
        tuple(rounds),
    )


def measured_costs(report: Callable[[str], None]) -> MessageCosts:
    """Costs of messages on the cluster that this process is connected to."""
    pool: Pool[Any, int]
    with Pool(Role(_echo), PoolOptions(copy_after=1e9)) as pool:
        _timed_map(pool, [b""] * 100)
        one_by_one_s = [_timed_map(pool, [b""], warm=False)[0] for _ in range(_ONE_BY_ONE)]
        report(f"round trip {1e3 * statistics.median(one_by_one_s):.2f} ms")
        one_s, many_s = (turn_s(pool, count, b"sleep") for count in _REFERENCES)
    with Pool(Role(_echo), PoolOptions(WorkerOptions(per_host=_WORKERS), copy_after=1e9)) as pool:
        _timed_map(pool, [b""] * 1000)
        idle = _Counters.now()
        time.sleep(_IDLE_S)
        idle = _Counters.now() - idle
        several = []
        for payload in _PAYLOADS:
            before = _Counters.now()
            wall_s, _ = _timed_map(pool, [bytes(payload)] * _EMPTY, warm=False)
            several.append((wall_s, _Counters.now() - before))
    (wall_s, none), (_, some) = several
    share = wall_s / _IDLE_S
    sent = [counted.sent_bytes - idle.sent_bytes * share for counted in (none, some)]
    return MessageCosts(
        round_trip_s=statistics.median(one_by_one_s),
        item_s=wall_s / _EMPTY,
        driver_cpu_s=none.driver_s / _EMPTY,
        ray_cpu_s=(none.ray_s - idle.ray_s * share) / _EMPTY,
        bytes_per_item=sent[0] / _EMPTY,
        bytes_per_payload_byte=(sent[1] - sent[0]) / (_EMPTY * (_PAYLOADS[1] - _PAYLOADS[0])),
        packets_per_item=(none.packets - idle.packets * share) / _EMPTY,
        wait_s=one_s,
        wait_each_s=(many_s - one_s) / (_REFERENCES[1] - _REFERENCES[0]),
    )


def _timed_map(pool: Pool[Any, Any], items: Sequence[Any], warm: bool = True) -> tuple[float, list[Done[Any]]]:
    """Wall seconds and the finished items, after some items to warm up each worker."""
    if warm:
        pool.wait_ready()
        pool.map(items[: 3 * pool.num_workers])
    begin_s = time.perf_counter()
    done = pool.map(items)
    return time.perf_counter() - begin_s, done


@dataclass(frozen=True)
class _Counters:
    """Counters of this machine and of the driver's and Ray's processes."""

    sent_bytes: float
    packets: float
    driver_s: float
    ray_s: float

    @classmethod
    def now(cls) -> _Counters:
        network: Mapping[str, Any] = psutil.net_io_counters(pernic=True)
        loopback = network["lo"]
        others = psutil.Process().children(recursive=True)
        return cls(loopback.bytes_sent, loopback.packets_sent, time.process_time(), sum(map(_cpu_s, others)))

    def __sub__(self, before: _Counters) -> _Counters:
        return _Counters(
            self.sent_bytes - before.sent_bytes,
            self.packets - before.packets,
            self.driver_s - before.driver_s,
            self.ray_s - before.ray_s,
        )


def _cpu_s(process: psutil.Process) -> float:
    """CPU seconds of gcs_server and raylets; 0 for workers."""
    try:
        times = process.cpu_times()
        return float(times.user + times.system) if process.name() in ("gcs_server", "raylet") else 0.0
    except psutil.NoSuchProcess:
        return 0.0


def _timed_simulation(evaluator: Evaluator) -> Callable[[Rows], tuple[float, list[float]]]:
    return partial(_simulate, evaluator)


def _simulate(evaluator: Evaluator, rows: Rows) -> tuple[float, list[float]]:
    """Seconds of the simulation, and makespans."""
    begin_s = time.perf_counter()
    batch = evaluator.evaluate_batch(rows.astype(np.int64))
    return time.perf_counter() - begin_s, batch.makespan_s.tolist()


def _echo() -> Callable[[object], int]:
    return _answer


def _answer(item: object) -> int:
    """Returns at once, but after a minute for `b"sleep"`."""
    if item == b"sleep":
        time.sleep(60.0)
    return 0

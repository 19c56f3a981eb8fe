"""`gnnplace bench engine`: nanoseconds per op of evaluations, batches and moves, and microseconds per evaluation of searches.

The graph is layered: the next layer reads every op, and every second op also reads from one of the three layers before it.
It runs on four linked devices of unequal speed, with dispatch overhead, memory, workspace and shared weights. There are three
kinds of placement: `local`, contiguous quarters of a topological order with one op in twenty moved at random, as searches
evaluate them; `list`, from HEFT; and `random`, the worst case, in which three of four tensors travel. Nanoseconds are the
minimum over rounds, as other work only adds time; ratios are medians over rounds, each taken within one round.

Searches are the guided search of `gnn` and annealing, on the layered graph of 300 ops from HEFT's placement, 2,000 evaluations
each, least of five runs. The guided search encodes the graph once; the encoding is timed apart, and so are list schedules and the
schedules that the policy samples.
"""

import math
from collections.abc import Callable
from functools import partial
from itertools import permutations
from timeit import timeit
from typing import Any

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.bench.harness import BenchOptions, BenchResult
from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.env.timing import empty_timing, refresh
from gnnplace.evaluation import Problem
from gnnplace.graph.op_graph import Op, OpGraph, SharedWeight, Tensor
from gnnplace.planners.classical.annealing import AnnealingConfig, anneal
from gnnplace.planners.classical.list_schedule import list_schedule
from gnnplace.planners.search import Search
from gnnplace.planners.solution import Budget
from gnnplace.sim.simulator import Simulator

SIZES = (300, 1_000, 3_000, 10_000, 30_000, 100_000)
_ROUNDS = 15
_OPS_PER_ROUND = 300_000
_SEARCHED, _SEARCH_ROUNDS = 2_000, 5
_BUILT = 50  # schedules of a kind
_POPULATION = 4  # factor by which batches are longer, so that waking threads takes a small share of the time


def bench_engine(options: BenchOptions) -> BenchResult:
    """A row per size and kind of placement."""
    rows = [_row(size, kind, options.seed) for size in SIZES for kind in ("local", "list", "random")]
    local, drawn = ([row for row in rows if row["placement"] == kind] for kind in ("local", "random"))
    local_ns = [row["ns_per_op"] for row in local]
    summary = {
        "local_max_ns_per_op": max(local_ns),
        "local_flatness": max(local_ns) / min(local_ns),
        "random_max_ns_per_op": max(row["ns_per_op"] for row in drawn),
        "batch_speed_up_min": min(row["batch_speed_up"] for row in local),
        "batch_speed_up_median": float(np.median([row["batch_speed_up"] for row in local])),
        "move_share_mean": float(np.mean([row["move_share"] for row in local])),
        "move_share_max": max(row["move_share"] for row in local),
        **_searches(options.seed),
    }
    return BenchResult("engine", options, rows, summary)


def _layered_graph(num_ops: int, seed: int) -> OpGraph:
    """A layered graph of about the square root of `num_ops` layers, with workspaces, weights and a few shared weights."""
    rng = np.random.default_rng(seed)
    width = max(4, math.isqrt(num_ops) // 2)
    names = [f"op{index}" for index in range(num_ops)]
    ops = [
        Op(name, memory_bytes=int(rng.integers(1, 10**6)), workspace_bytes=int(rng.integers(0, 10**5)))
        for name in names
    ]
    consumers: list[list[str]] = [[] for _ in names]
    for layer_begin in range(width, num_ops, width):
        # The next layer reads every op of a layer, as in networks; only the last layer's results stay.
        mains = rng.permutation(width) + layer_begin - width
        for index, main in zip(range(layer_begin, min(layer_begin + width, num_ops)), mains.tolist(), strict=False):
            producers = {main}
            if rng.random() < 0.5:
                producers.add(int(rng.integers(max(0, layer_begin - 3 * width), layer_begin)))
            for producer in sorted(producers):
                consumers[producer].append(names[index])
    tensors = [
        Tensor(name, int(rng.integers(10**3, 10**6)), tuple(readers))
        for name, readers in zip(names, consumers, strict=True)
    ]
    shared = [SharedWeight(10**5, tuple(names[i] for i in rng.integers(0, num_ops, 3))) for _ in range(num_ops // 100)]
    return OpGraph.build(f"layered-{num_ops}", ops, tensors, shared)


def _inputs(num_ops: int, rng: np.random.Generator, seed: int) -> tuple[OpGraph, Topology, FloatArray]:
    """A graph, four devices, and seconds `[N, 4]`."""
    four = tuple(Device(f"d{index}", memory_bytes=10**12, dispatch_overhead_s=5e-6) for index in range(4))
    topology = Topology("four", four, tuple(Link(a.name, b.name, 1e-5, 1e10) for a, b in permutations(four, 2)))
    times: FloatArray = rng.uniform(1e-5, 1e-3, (num_ops, 1)) * rng.uniform(0.5, 1.5, (num_ops, 4))
    return _layered_graph(num_ops, seed), topology, times


def _searches(seed: int) -> dict[str, float]:
    """Microseconds per evaluation of the guided search and of annealing, of one encoding, and of one schedule by HEFT and by the policy."""
    from gnnplace.planners.gnn.builds import PolicyBuilder
    from gnnplace.planners.gnn.moves import MovesConfig
    from gnnplace.planners.gnn.odds import MoveOdds, OddsConfig, PolicySearch
    from gnnplace.planners.gnn.search import RevisitConfig, revisit
    from gnnplace.policy import SHIPPED_POLICY
    from gnnplace.policy.checkpoint import load_policy
    from gnnplace.policy.network import one_thread, policy_inputs

    graph, topology, times = _inputs(SIZES[0], np.random.default_rng(seed + 1), seed)
    simulator = Simulator(graph, topology, times, 1)
    problem = Problem(graph, topology, times, simulator, simulator)
    (network, _), inputs = load_policy(SHIPPED_POLICY), policy_inputs(problem)
    timing = empty_timing(problem, 1)
    begin = list_schedule(problem).assignment
    refresh(problem, inputs.tables, timing, 0, begin)
    config = RevisitConfig(moves=MovesConfig(odds=OddsConfig(encode_every=10**9)))

    def guided() -> None:
        with Search(problem, Budget(_SEARCHED + 1), "gnn", seed) as search:
            start_s = float(search.evaluate_batch(begin[None])[0])
            revisit(PolicySearch(search, inputs, network, np.random.default_rng(seed)), (begin, start_s), 1.0, config)

    def annealed() -> None:
        with Search(problem, Budget(_SEARCHED + 1), "annealing", seed) as search:
            start_s = float(search.evaluate_batch(begin[None])[0])
            anneal(search, begin, start_s, np.random.default_rng(seed), AnnealingConfig())

    def listed() -> None:
        for _ in range(_BUILT):
            list_schedule(problem)

    def sampled() -> None:
        for _ in PolicyBuilder(problem, network, np.random.default_rng(seed)).schedules(_BUILT):
            pass

    odds = MoveOdds(
        PolicySearch(Search(problem, Budget(1), "gnn", seed), inputs, network, np.random.default_rng(seed)),
        config.moves.odds,
    )
    calls: dict[str, tuple[Callable[[], object], int]] = {
        "guided_us_per_evaluation": (guided, _SEARCHED),
        "walk_us_per_evaluation": (annealed, _SEARCHED),
        "encoding_us": (partial(odds.encode, timing), 1),
        "list_schedule_us": (listed, _BUILT),
        "sampled_schedule_us": (sampled, _BUILT),
    }
    with one_thread():
        return {
            name: min(timeit(call, number=1) for _ in range(_SEARCH_ROUNDS)) / count * 1e6
            for name, (call, count) in calls.items()
        }


def _row(num_ops: int, kind: str, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed + 1)
    graph, topology, times = _inputs(num_ops, rng, seed)
    one_core, two_cores = (Simulator(graph, topology, times, num_threads) for num_threads in (1, 2))
    count = max(4, _OPS_PER_ROUND // num_ops)
    placements = _placements(kind, count, Problem(graph, topology, times, one_core, one_core), rng)
    population = np.tile(placements, (_POPULATION, 1))
    base = placements[0]
    moved = rng.integers(0, num_ops, max(16, count))
    devices = (base[moved] + rng.integers(1, 4, len(moved))) % 4
    moved_placements = np.repeat(base[None], len(moved), axis=0)
    moved_placements[np.arange(len(moved)), moved] = devices
    one_core.evaluate_moves(base, moved[:8], devices[:8])  # runs the base placement once
    calls: list[tuple[Callable[[], object], int]] = [
        (partial(one_core.evaluate_batch, population), len(population)),
        (partial(two_cores.evaluate_batch, population), len(population)),
        (partial(one_core.evaluate_moves, base, moved, devices), len(moved)),
        (partial(one_core.evaluate_batch, moved_placements), len(moved)),
    ]
    rounds = np.array([[timeit(call, number=1) / count for call, count in calls] for _ in range(_ROUNDS)])
    one_s, two_s, move_s, moved_s = rounds.T
    return {
        "ops": num_ops,
        "edges": len(graph.consumers),
        "placement": kind,
        "ns_per_op": float(one_s.min()) / num_ops * 1e9,
        "batch_speed_up": float(np.median(one_s / two_s)),
        "move_share": float(np.median(move_s / moved_s)),
    }


def _placements(kind: str, count: int, problem: Problem, rng: np.random.Generator) -> IntArray:
    num_ops = problem.graph.num_ops
    if kind == "random":
        return rng.integers(0, 4, (count, num_ops))
    if kind == "list":
        start = list_schedule(problem).assignment
    else:
        start = np.empty(num_ops, dtype=np.int64)
        start[problem.graph.topological_order] = np.arange(num_ops) * 4 // num_ops
    return np.where(rng.random((count, num_ops)) < 0.05, rng.integers(0, 4, (count, num_ops)), start[None])

"""Lower bounds: never above any schedule, and tight where they can be."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnplace.devices.topology import Device, Topology
from gnnplace.evaluation import Objective
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.placement import allowed_mask
from gnnplace.sim import relaxation
from gnnplace.sim.bounds import LowerBound, lower_bound
from gnnplace.sim.simulator import Simulator
from tests import problems
from tests.random_problems import random_graph, sharing


def connected(*devices: Device, latency_s: float = 1.0) -> Topology:
    return problems.connected(*devices, latency_s=latency_s, bandwidth=10.0)


def chain(length: int, memory_bytes: int = 0) -> OpGraph:
    ops = [Op(f"o{i}", memory_bytes=memory_bytes) for i in range(length)]
    return OpGraph.build("chain", ops, [Tensor(f"o{i}", 10 * (i + 1), (f"o{i + 1}",)) for i in range(length - 1)])


def test_an_empty_graph_takes_no_time() -> None:
    graph = OpGraph.build("empty", [])
    assert lower_bound(graph, connected(Device("x")), np.zeros((0, 1)), "latency") == LowerBound(0.0, "critical path")


def wide(num_ops: int, **pinned: tuple[str, ...]) -> OpGraph:
    """Ops `o0`, `o1`, ... without data between them; `pinned` gives the devices that may run an op."""
    return OpGraph.build("wide", [Op(f"o{i}", devices=pinned.get(f"o{i}")) for i in range(num_ops)])


GROUP = OpGraph.build("group", [Op(f"o{i}", group="g") for i in range(4)])
APART = OpGraph.build("apart", [Op("a", devices=("x",)), Op("b", devices=("y",))], [Tensor("a", 10, ("b",))])


@pytest.mark.parametrize(
    ("graph", "times", "objective", "seconds", "name"),
    [
        pytest.param(chain(3), [[1, 5], [6, 2], [3, 3]], "latency", 6.0, "critical path", id="fastest device per op"),
        pytest.param(wide(8), 1.0, "latency", 4.0, "work over all devices", id="equal devices share the work"),
        pytest.param(wide(9), [1.0, 2.0], "throughput", 6.0, None, id="six ops here and three there"),
        pytest.param(wide(8, **{f"o{i}": ("x",) for i in range(5)}), 1.0, "latency", 5.0, None, id="pinned ops"),
        pytest.param(GROUP, 1.0, "latency", 4.0, "largest unit", id="a colocation group one op after the other"),
        pytest.param(APART, 1.0, "latency", 4.0, "forced transfer", id="ops for different devices"),
    ],
)
def test_the_bound_on_two_devices_is_the_one_computed_by_hand(
    graph: OpGraph, times: object, objective: Objective, seconds: float, name: str | None
) -> None:
    op_time_s = np.array(np.broadcast_to(np.asarray(times, dtype=np.float64), (graph.num_ops, 2)))
    bound = lower_bound(graph, connected(Device("x"), Device("y")), op_time_s, objective)
    assert bound.value_s == pytest.approx(seconds)
    assert name in (None, bound.name)


@pytest.mark.parametrize(("together_s", "seconds"), [(0.6, 4.0), (0.4, 3.2)])
def test_work_is_counted_in_seconds_of_resources(together_s: float, seconds: float) -> None:
    cores = [Device("cpu:0", resources=("c0",)), Device("cpu:1", resources=("c1",))]
    topology = connected(*cores, Device("cpu:0-1", resources=("c0", "c1")))
    for objective in ("latency", "throughput"):
        bound = lower_bound(wide(8), topology, np.array([[1.0, 1.0, together_s]] * 8), objective)
        assert bound.value_s == pytest.approx(seconds)


def test_devices_of_one_memory_do_not_add_up_their_memories() -> None:
    graph = OpGraph.build("wide", [Op(f"o{i}", memory_bytes=10) for i in range(4)])
    pool = [Device(name, memory_bytes=20, memory_pool="host") for name in "xy"]
    bound = lower_bound(graph, connected(*pool, Device("slow")), np.array([[1.0, 1.0, 100.0]] * 4), "throughput")
    assert bound.value_s == pytest.approx(200.0)


def test_memory_sends_work_to_the_slow_device() -> None:
    graph = OpGraph.build("wide", [Op(f"o{i}", memory_bytes=10) for i in range(4)])
    topology = connected(Device("fast", memory_bytes=20), Device("slow"))
    bound = lower_bound(graph, topology, np.array([[1.0, 100.0]] * 4), "throughput")
    assert bound.value_s == pytest.approx(200.0)
    assert "memory" in bound.name


def test_memory_makes_a_path_longer() -> None:
    topology = connected(Device("fast", memory_bytes=20), Device("slow"), latency_s=0.0)
    bound = lower_bound(chain(4, memory_bytes=10), topology, np.array([[1.0, 100.0]] * 4), "latency")
    assert bound.value_s == pytest.approx(202.0)
    assert bound.name == "paths, memory over all devices"


def test_a_chain_that_fits_on_no_device_pays_its_cheapest_transfer() -> None:
    topology = connected(Device("x", memory_bytes=30), Device("y", memory_bytes=30))
    bound = lower_bound(chain(4, memory_bytes=10), topology, np.ones((4, 2)), "latency")
    assert bound == LowerBound(6.0, "forced transfer")  # four ops, and 1 s + 10 bytes / 10 bytes per second


def test_parts_that_fit_on_their_own_force_no_transfer() -> None:
    ops = [Op(f"o{i}", memory_bytes=10) for i in range(4)]
    graph = OpGraph.build("two", ops, [Tensor("o0", 10, ("o1",)), Tensor("o2", 10, ("o3",))])
    topology = connected(Device("x", memory_bytes=20), Device("y", memory_bytes=20), latency_s=9.0)
    assert lower_bound(graph, topology, np.ones((4, 2)), "latency").value_s == pytest.approx(2.0)


def test_a_program_that_is_too_large_is_solved_for_similar_units(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    graph = OpGraph.build("wide", [Op(f"o{i}", memory_bytes=int(rng.integers(1, 9))) for i in range(200)])
    topology = connected(Device("x", memory_bytes=400), Device("y"))
    times = rng.uniform(1.0, 2.0, (200, 2))
    exact = lower_bound(graph, topology, times, "throughput").value_s
    monkeypatch.setattr(relaxation, "_MAX_VARIABLES", 40)
    joined = lower_bound(graph, topology, times, "throughput").value_s
    assert 0.9 * exact < joined <= exact * (1 + 1e-9)


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    objective=st.sampled_from(["latency", "throughput"]),
    tight=st.booleans(),
    shared=st.booleans(),
)
def test_no_feasible_placement_beats_the_bound(seed: int, objective: Objective, tight: bool, shared: bool) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 8, groups=1, pinned=True)
    num_ops, num_devices = graph.num_ops, int(rng.integers(1, 4))
    memory = max(1, int(graph.total_weight_bytes * rng.uniform(0.5, 3.0))) if tight else None
    devices = [Device(f"d{i}", "gpu" if i else "cpu", memory) for i in range(num_devices)]
    topology = connected(*(sharing(rng, memory, one) if shared else one for one in devices), latency_s=0.1)
    times = rng.uniform(0.5, 3.0, (num_ops, num_devices)) if rng.random() < 0.7 else np.ones((num_ops, num_devices))
    bound = lower_bound(graph, topology, times, objective).value_s
    choices = np.array(list(itertools.product(range(num_devices), repeat=num_ops)), dtype=np.int64)
    choices = rng.permutation(choices)[:3000]
    mask = allowed_mask(graph, topology)
    legal = mask[np.arange(num_ops), choices].all(axis=1)
    grouped = np.flatnonzero(graph.colocation >= 0)
    if grouped.size:
        legal &= (choices[:, grouped] == choices[:, grouped[:1]]).all(axis=1)
    batch = Simulator(graph, topology, times).evaluate_batch(choices[legal])
    feasible = batch.shortfall_bytes == 0
    seconds = (batch.makespan_s if objective == "latency" else batch.period_s)[feasible]
    assert bound > 0
    assert (seconds >= bound * (1 - 1e-9)).all()

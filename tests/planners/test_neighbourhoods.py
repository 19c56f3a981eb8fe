"""Sets of near devices, and the list schedules that stay on them."""

from collections.abc import Sequence
from itertools import combinations, pairwise, permutations, product

import numpy as np
import pytest

from gnnplace.api import set_up
from gnnplace.bench.generalization.cases import generated_graph
from gnnplace.devices.presets import preset
from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.evaluation import Problem
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.planners.classical import constructions
from gnnplace.planners.classical.constructions import evaluate_starts
from gnnplace.planners.classical.neighbourhoods import neighbourhood_schedules, neighbourhoods
from gnnplace.planners.search import Search
from gnnplace.planners.solution import Budget
from models_zoo.networks.generated import workflow
from tests.problems import devices_of, full_mesh, problem_of


def servers(kinds: Sequence[str], near_s: float = 1e-5, far_s: float = 1e-3, noise: float = 0.0) -> Topology:
    """Servers of one device for each letter of their kinds; those of one server are near each other."""
    rng = np.random.default_rng(0)
    sides = [
        [Device(f"{kind}{server}.{at}", kind) for at, kind in enumerate(word)] for server, word in enumerate(kinds)
    ]
    pairs = [(pair, near_s) for side in sides for pair in permutations(side, 2)]
    pairs += [(pair, far_s) for one, other in permutations(sides, 2) for pair in product(one, other)]
    links = [Link(a.name, b.name, time_s * np.exp(noise * rng.uniform(-1, 1)), 1e12) for (a, b), time_s in pairs]
    return Topology("servers", tuple(device for side in sides for device in side), tuple(links))


def names(topology: Topology, num_bytes: float = 1.0) -> list[str]:
    return [" ".join(np.array(topology.device_names)[devices]) for devices in neighbourhoods(topology, num_bytes)]


def test_of_equal_servers_the_first_one_two_and_four_are_neighbourhoods() -> None:
    assert names(servers(["gg"] * 6)) == [
        "g0.0 g0.1", "g0.0 g0.1 g1.0 g1.1", "g0.0 g0.1 g1.0 g1.1 g2.0 g2.1 g3.0 g3.1",
    ]  # fmt: skip


def test_unequal_servers_are_neighbourhoods_of_their_own() -> None:
    assert names(servers(["gg", "gg", "gc"])) == ["g0.0 g0.1", "g0.0 g0.1 g1.0 g1.1", "g2.0 c2.1"]


def test_equal_devices_of_one_server_are_neighbourhoods_too() -> None:
    assert names(servers(["gggc", "gggc"])) == ["g0.0 g0.1", "g0.0 g0.1 g0.2", "g0.0 g0.1 g0.2 c0.3"]


def test_devices_that_differ_only_in_memory_are_unequal() -> None:
    made = servers(["gg", "gg"])
    devices = tuple(Device(each.name, each.kind, 1000 * (1 + at // 2)) for at, each in enumerate(made.devices))
    assert names(Topology("memory", devices, made.links)) == ["g0.0 g0.1", "g1.0 g1.1"]


def test_devices_at_one_distance_have_no_neighbourhoods() -> None:
    assert names(full_mesh(5)) == names(Topology("one", devices_of("g"))) == names(preset("k80x4")) == []


def test_measured_distances_that_differ_a_little_are_one_distance() -> None:
    assert names(servers(["ggg", "ggg"], noise=0.1)) == ["g0.0 g0.1", "g0.0 g0.1 g0.2"]
    assert len(names(servers(["ggg", "ggg"], noise=1.0))) > 1


def test_distances_are_seconds_of_a_transfer() -> None:
    """Links inside of a pair of devices are slow to begin, and then fast."""
    devices = devices_of("gggg")
    links = [
        Link(devices[a].name, devices[b].name, *((1e-3, 1e12) if a // 2 == b // 2 else (1e-6, 1e6)))
        for a, b in permutations(range(4), 2)
    ]
    topology = Topology("pairs", devices, tuple(links))
    assert names(topology, 1e6) == ["g0 g1"]
    assert names(topology, 1.0) == []


def test_links_without_any_time_are_near() -> None:
    assert names(servers(["gg", "gg"], near_s=0.0), 0.0) == ["g0.0 g0.1"]


def test_gpus_with_links_of_their_own_are_near_without_their_host() -> None:
    assert names(preset("a100-sxmx4")) == ["a100-sxm:0 a100-sxm:1", "a100-sxm:0 a100-sxm:1 a100-sxm:2 a100-sxm:3"]


def test_devices_without_a_route_are_not_near() -> None:
    a, b, c = devices_of("ggg")
    topology = Topology("apart", (a, b, c), (Link(a.name, b.name, 1e-6, 1e9), Link(b.name, a.name, 1e-6, 1e9)))
    assert names(topology) == ["g0 g1"]


def wide_problem() -> Problem:
    graph = generated_graph(workflow.Settings(width=40), 5)
    hosts = [Device(f"cpu:{server}", "cpu", None, {"float32": 2e12}, 1e11, 5e-6) for server in range(2)]
    gpus = [[Device(f"gpu:{s}.{at}", "gpu", None, {"float32": 1e13}, 5e11, 1e-5) for at in range(3)] for s in range(2)]
    pairs = [
        (pair, 1e-5, 12e9) for host, side in zip(hosts, gpus, strict=True) for pair in combinations([host, *side], 2)
    ]
    pairs.append(((hosts[0], hosts[1]), 5e-5, 1.25e9))
    links = [Link(x.name, y.name, *rest) for (a, b), *rest in pairs for x, y in ((a, b), (b, a))]
    return set_up(graph, Topology("two", (*hosts, *gpus[0], *gpus[1]), tuple(links)), max_groups=300).problem()


def test_schedules_stay_on_their_neighbourhood() -> None:
    problem = wide_problem()
    near = neighbourhoods(problem.topology, float(problem.graph.tensor_bytes.mean()))
    found = list(neighbourhood_schedules(problem, 5))
    assert len(found) == 5 * len(near) > 0
    for number, assignment in enumerate(found):
        assert near[number % len(near)][assignment].all()


def test_units_that_may_not_run_there_run_elsewhere() -> None:
    topology = servers(["gg", "gh"])
    ops = [Op(name, devices=("h",) if name == "b" else None) for name in "abcd"]
    graph = OpGraph.build("pinned", ops, [Tensor(a, 8, (b,)) for a, b in pairwise("abcd")])
    problem = problem_of(graph, topology)
    for assignment in neighbourhood_schedules(problem, 3):
        assert topology.device_names[assignment[1]] == "h1.1"
        assert len(set(assignment[[0, 2, 3]] // 2)) == 1  # on one server


def test_a_wide_workflow_starts_on_one_server(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = wide_problem()

    def best_s() -> float:
        search = Search(problem, Budget(1), "test", 0)
        return float(evaluate_starts(search, 1, np.random.default_rng(0)).seconds[0])

    with_them = best_s()
    monkeypatch.setattr(constructions, "neighbourhood_schedules", lambda problem, builds: iter(()))
    assert with_them < 0.8 * best_s()

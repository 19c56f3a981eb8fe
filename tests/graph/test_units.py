"""Units joined into fewer units, and random connected sets of units."""

from collections import Counter
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnplace.graph.coarsen import coarsen
from gnnplace.graph.op_graph import Op, OpGraph, SharedWeight, Tensor
from gnnplace.graph.units import coarsen_units, colocated_units, first_above, grow_cluster, joined_units, unit_bytes
from gnnplace.sim.example import diamond
from tests.random_problems import random_graph


def ladder(rungs: int) -> OpGraph:
    """A training step in small: forward ops, backward ops, and each pair shares a device."""
    ops = [Op(f"{side}{i}", group=f"g{i}", flops=1.0) for side in "fb" for i in range(rungs)]
    forward = [Tensor(f"f{i}", i + 1, (f"f{i + 1}", f"b{i}")) for i in range(rungs - 1)]
    backward = [Tensor(f"b{i}", i + 1, (f"b{i - 1}",)) for i in range(1, rungs)]
    return OpGraph.build("ladder", ops, [*forward, Tensor(f"f{rungs - 1}", 1, (f"b{rungs - 1}",)), *backward])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), num_ops=st.integers(2, 80), most=st.integers(1, 40))
def test_units_join_only_with_units_of_their_device_and_their_allowed_devices(
    seed: int, num_ops: int, most: int
) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, num_ops, pinned=True)
    apart = rng.integers(0, 3, graph.num_ops)
    unit = joined_units(graph, np.arange(graph.num_ops), most, apart)
    assert set(unit.tolist()) == set(range(unit.max() + 1))
    for number in range(unit.max() + 1):
        members = np.flatnonzero(unit == number)
        assert len({(int(apart[op]), graph.allowed_devices[op]) for op in members}) == 1


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), num_ops=st.integers(8, 80), most=st.integers(4, 40))
def test_no_joined_unit_holds_more_than_its_share(seed: int, num_ops: int, most: int) -> None:
    graph = random_graph(np.random.default_rng(seed), num_ops, pinned=True)
    unit = joined_units(graph, np.arange(graph.num_ops), most)
    share = np.bincount(unit, weights=graph.flops) / graph.flops.sum()
    alone = np.array([count == 1 for _, count in sorted(Counter(unit.tolist()).items())])
    # Half of the load is FLOPs, the other half the bytes that ops access.
    assert (share[~alone] / 2 <= 4.0 / most + 1e-9).all()


def test_pairs_that_exchange_most_join_first() -> None:
    names = [f"o{i}" for i in range(6)]
    tensors = [Tensor(a, size, (b,)) for a, b, size in zip(names[:-1], names[1:], (1, 50, 2, 40, 3), strict=True)]
    unit = joined_units(OpGraph.build("chain", [Op(name) for name in names], tensors), np.arange(6), most=4)
    assert unit[1] == unit[2]
    assert unit[3] == unit[4]
    assert unit.max() == 3


def test_leaves_of_a_hub_join_with_each_other() -> None:
    leaves = tuple(f"leaf{i}" for i in range(64))
    graph = OpGraph.build("star", [Op("hub"), *(Op(leaf) for leaf in leaves)], [Tensor("hub", 8, leaves)])
    unit = joined_units(graph, np.arange(65), most=8)
    assert unit.max() + 1 <= 8


def test_few_units_stay_as_they_are() -> None:
    assert joined_units(ladder(4), np.arange(8), most=8).tolist() == list(range(8))


def test_colocation_groups_are_joined_where_there_are_too_many_of_them() -> None:
    graph = ladder(200)
    assert coarsen(graph, 16).graph.num_ops > 200  # forward and backward op cannot merge, and groups do not
    coarse = coarsen_units(graph, 16)
    assert coarse.graph.num_ops < 100
    labels = coarse.graph.colocation
    units = len(set(labels[labels >= 0].tolist())) + int((labels < 0).sum())
    assert units <= 16
    # Ops of one group are in groups of one unit, wherever they are.
    unit_of_group = np.where(labels >= 0, labels, 1000 + np.arange(len(labels)))
    unit_of_op = unit_of_group[coarse.group_of_op]
    for group in range(200):
        assert len(set(unit_of_op[graph.colocation == group].tolist())) == 1


def test_coarsening_is_the_plain_one_where_that_suffices() -> None:
    graph = random_graph(np.random.default_rng(3), 60)
    assert coarsen_units(graph, 20).group_of_op.tolist() == coarsen(graph, 20).group_of_op.tolist()


def test_in_large_graphs_colocated_ops_merge_only_with_those_nearby(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two pairs: one side by side at the front, one around the other ops, which hang on nothing.
    ops = [Op("a", group="near"), Op("b", group="near"), Op("c", group="far"), *(Op(f"x{i}") for i in range(20))]
    graph = OpGraph.build("pairs", [*ops, Op("d", group="far")])

    def merged(group: str) -> bool:
        coarse = coarsen(graph, max_groups=graph.num_ops)
        members = np.flatnonzero(graph.colocation == graph.colocation_names.index(group))
        return len(set(coarse.group_of_op[members].tolist())) == 1

    assert merged("near")
    assert merged("far")
    module = import_module("gnnplace.graph.coarsen")
    monkeypatch.setattr(module, "_LARGE", 5)
    monkeypatch.setattr(module, "_NEAR", 20)
    assert merged("near")
    assert not merged("far")


def test_the_first_entry_above_a_value_is_found() -> None:
    assert [first_above(np.array([1.0, 3.0, 6.0]), value) for value in (0.5, 1.0, 6.0)] == [0, 1, 2]


def test_a_large_cluster_is_all_that_is_connected_on_the_device() -> None:
    scratch, devices = np.zeros((3, 4), dtype=np.int64), np.array([0, 0, 0, 1])
    count = grow_cluster(diamond().unit_graph, 100.0, devices, np.random.default_rng(0), scratch)
    assert sorted(scratch[0, :count].tolist()) == [0, 1, 2]


def test_a_unit_weighs_its_weights_its_part_of_shared_ones_and_a_share_of_its_tensors() -> None:
    ops = [Op("a", memory_bytes=3, group="g"), Op("b", memory_bytes=4, group="g"), Op("c"), Op("d")]
    graph = OpGraph.build("some", ops, [Tensor("a", 20, ("c",)), Tensor("c", 6)], [SharedWeight(12, ("b", "c", "d"))])
    unit = colocated_units(graph)
    assert unit_bytes(graph, unit, 0.5)[unit[1:]].tolist() == [3 + 4 + 4 + 10, 4 + 3, 4]
    assert unit_bytes(graph, unit)[unit[1:]].tolist() == [3 + 4 + 4, 4, 4]
    assert unit_bytes(graph, unit, np.array([True, False]))[unit[1:]].tolist() == [3 + 4 + 4 + 20, 4, 4]

"""Sealed cases have families and device sets that neither training nor development has."""

from collections import Counter

import pytest

from gnnplace.bench.generalization.cases import CASES
from gnnplace.bench.generalization.devices import SEALED_SETS, held_out_devices, unlike_training
from gnnplace.bench.generalization.sealed import SEALED, SEALED_CASES, SEALED_GRAPHS
from models_zoo.networks.catalog import FAMILIES
from models_zoo.networks.shipped import manifest

ROWS = {row.key: row for row in manifest()}
OPS = {name: row.ops for name, row in ROWS.items()}


def test_at_least_40_cases_cover_all_sealed_families_and_device_sets() -> None:
    families = {SEALED.family(case.graph) for case in SEALED_CASES}
    assert families == {name for name, family in FAMILIES.items() if family.split == "sealed"}
    assert len(families) >= 12
    assert len(SEALED_CASES) == len({case.name for case in SEALED_CASES}) >= 40
    assert {case.devices for case in SEALED_CASES} == set(SEALED_SETS)
    assert {case.devices for case in SEALED_CASES}.isdisjoint(case.devices for case in CASES)


def test_sealed_device_sets_have_up_to_32_devices_shared_resources_and_one_memory_for_several_devices() -> None:
    topologies = {name: held_out_devices(name) for name in SEALED_SETS}
    counts = Counter(topology.num_devices for topology in topologies.values())
    assert counts[16] == 2
    assert counts[32] == 2
    assert {name for name, one in topologies.items() if one.shares_resources} == {"slices-8", "gangs-8", "gangs-16"}
    assert {name for name, one in topologies.items() if one.shares_memory} >= {"slices-8", "laptop-3"}
    assert sum(case.memory_share is not None for case in SEALED_CASES) >= 6


@pytest.mark.parametrize("name", SEALED_SETS)
def test_training_cannot_draw_a_sealed_device_set_and_all_its_devices_are_connected(name: str) -> None:
    topology = held_out_devices(name)
    assert unlike_training(topology) != () or topology.shares_resources or topology.shares_memory
    pairs = [(s, t) for s in range(topology.num_devices) for t in range(topology.num_devices)]
    assert all(s == t or topology.route(s, t) is not None for s, t in pairs)


def test_the_largest_sealed_graphs_have_4000_to_7000_ops_and_each_has_as_many_as_groups_are_wanted() -> None:
    counts = {name: SEALED.graph(name).num_ops for name in SEALED_GRAPHS}
    assert sorted(counts.values())[-3:] == [4060, 5631, 7136]
    assert counts.keys() == {case.graph for case in SEALED_CASES if case.graph not in ROWS}
    assert all(case.max_groups <= 1.3 * {**counts, **OPS}[case.graph] for case in SEALED_CASES)
    assert SEALED.graph("wavenet").num_ops == OPS["wavenet"]

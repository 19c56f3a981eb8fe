"""The held-out cases have the stated sizes, and training can draw none of them."""

from collections import Counter

import numpy as np
import pytest

from gnnplace.api.training_problems import training_families
from gnnplace.bench.generalization.cases import CASES, DEVELOPMENT, GENERATED_GRAPHS, training_types
from gnnplace.bench.generalization.devices import HAND_MADE, held_out_devices, unlike_training, unseen_count
from gnnplace.bench.generalization.run import setup_of_case
from gnnplace.bench.papers.tables import SEEDS_ROWS, SPOTLIGHT_ROWS
from gnnplace.devices.presets import preset
from gnnplace.devices.sampled import DeviceRanges, sample_devices
from gnnplace.placement import Placement
from models_zoo.networks.shipped import manifest


def test_case_names_are_unique_and_most_cases_have_at_most_500_groups() -> None:
    sizes = Counter(case.max_groups for case in CASES)
    assert len({case.name for case in CASES}) == len(CASES)
    assert set(sizes) == {50, 100, 200, 500, 1000, 2000}
    assert sum(count for size, count in sizes.items() if size <= 500) > len(CASES) / 2


def test_zoo_cases_are_of_the_test_split_and_cover_its_families_of_at_least_50_ops() -> None:
    rows = {row.key: row for row in manifest()}
    used = {rows[case.graph].family for case in CASES if case.graph not in GENERATED_GRAPHS}
    drawn = {"wavefront"}  # by training too, which did not when these cases were fixed
    assert used & set(training_families()) == drawn
    large = {row.family for row in rows.values() if row.split == "test" and row.ops >= 50}
    later = {"workflow"}  # was sealed when these cases were fixed
    assert used - drawn == large - drawn - later


def test_no_case_repeats_a_graph_with_its_devices_from_the_papers_tables() -> None:
    looked_at = {(row.workload.removeprefix("zoo:"), row.devices) for row in (*SEEDS_ROWS, *SPOTLIGHT_ROWS)}
    cases = {(case.graph, case.devices) for case in CASES}
    # Both name graphs and devices alike, or there would be nothing to share.
    assert {graph for graph, _ in cases} & {graph for graph, _ in looked_at} >= {
        "inception_v3:training",
        "nmt_2:training",
    }
    assert {devices for _, devices in cases} & {devices for _, devices in looked_at} == {"k40x2", "k80x2", "k80x4"}
    assert cases & looked_at == set()


def test_a_generated_graph_is_reproducible_and_every_graph_and_device_set_is_used() -> None:
    first, second = DEVELOPMENT.graph("dag-dense"), DEVELOPMENT.graph("dag-dense")
    assert first.num_ops == 250
    assert np.array_equal(first.flops, second.flops)
    assert {case.graph for case in CASES} >= set(GENERATED_GRAPHS)
    assert {case.devices for case in CASES} >= set(HAND_MADE)


@pytest.mark.parametrize("name", dict.fromkeys(case.devices for case in CASES))
def test_training_cannot_draw_a_held_out_device_set_and_all_its_devices_are_connected(name: str) -> None:
    topology = held_out_devices(name)
    assert unlike_training(topology) != ()
    pairs = [(s, t) for s in range(topology.num_devices) for t in range(topology.num_devices)]
    assert all(s == t or topology.route(s, t) is not None for s, t in pairs)
    assert sum(not device.is_host for device in topology.devices) != 1


def test_no_sampled_device_set_is_unlike_training() -> None:
    drawn = [sample_devices(np.random.default_rng(seed)) for seed in range(400)]
    assert {unlike_training(topology) for topology in drawn} == {()}


def test_each_reason_is_found_where_it_holds_and_nowhere_else() -> None:
    assert unlike_training(preset("k40x4")) == ()
    assert unlike_training(preset("k80x4")) == ("channels that some links share",)
    assert unlike_training(held_out_devices("upload-5")) == ("links that are slower one way",)
    assert unlike_training(held_out_devices("ring-8")) == ("direct links between some accelerators only",)
    assert unlike_training(preset("k40x4"), DeviceRanges(num_devices=(4,))) == ("5 devices",)


def test_some_cases_have_numbers_of_devices_and_op_types_that_no_training_has() -> None:
    topologies = [held_out_devices(case.devices) for case in CASES]
    assert {topology.num_devices for topology in topologies if unseen_count(topology)} == {3, 6, 16}
    assert not all(map(unseen_count, topologies))
    assert "TopK" in set(DEVELOPMENT.graph("moe_8").op_types) - training_types()
    assert {"MatMul", "Conv", "Sum", "Relu"} <= training_types()


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("wavefront_16x16 50 on servers-4x4", 50),
        ("nmt_2:training 100 on v100x2 memory 0.8", 73),  # colocation joins what coarsening would keep apart
        ("dag-fat 500 on h100-sxmx7", 400),
    ],
)
def test_a_case_has_50_to_2000_groups(name: str, groups: int) -> None:
    assert setup_of_case(name).problem().num_units == groups


def test_accelerators_hold_the_share_of_memory_together_in_unequal_parts() -> None:
    setup = setup_of_case("llama_prefill 200 on ring-8 memory 0.8")
    memory = [device.memory_bytes or 0 for device in setup.topology.devices]
    assert memory[0] == pytest.approx(2 * memory[6], rel=1e-6)
    assert memory[:7] == sorted(memory[:7], reverse=True)
    assert memory[7] == held_out_devices("ring-8").devices[7].memory_bytes
    alone = setup.simulator.evaluate(Placement(np.full(setup.workload.graph.num_ops, 7)))
    assert sum(memory[:7]) == pytest.approx(0.8 * alone.peak_memory_bytes[7], rel=1e-6)

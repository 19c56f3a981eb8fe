"""Records: what a search or a file becomes, what the check notices, and the list."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnnplace
from gnnplace.api.recorded import recorded_setup
from gnnplace.bench.generalization.sealed import SEALED_CASES
from gnnplace.bench.harness import BenchOptions
from gnnplace.bench.records import keeping, searching
from gnnplace.bench.records.cases import record_cases
from gnnplace.bench.records.checking import faults
from gnnplace.bench.records.keeping import keep_found, keep_given
from gnnplace.bench.records.page import page
from gnnplace.bench.records.searching import RecordSearch, search_result
from gnnplace.bench.records.suite import bench_records
from gnnplace.devices.presets import preset
from gnnplace.errors import GnnplaceError
from gnnplace.placement import Placement, save_placement
from models_zoo.records.names import record_names
from models_zoo.records.record import Found, Record, load_record, store_devices, write_record

NAME, SMALL_OPS = "layered_200-k40x4", 250


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the record of one search by HEFT."""
    keep_found(RecordSearch(NAME, "heft", 1.0, 0), search_result(RecordSearch(NAME, "heft", 1.0, 0)), tmp_path)
    return tmp_path


def test_there_are_150_cases_and_no_sealed_graph_is_among_them() -> None:
    cases = record_cases().values()
    assert len(cases) >= 150
    sealed = {case.graph for case in SEALED_CASES}
    assert {case.graph for case in cases} & sealed == set()


def test_a_record_names_its_graph_devices_and_costs(folder: Path) -> None:
    record = load_record(NAME, folder)
    assert faults(record) == []
    assert (record.found.planner, record.ops, record.num_devices) == ("heft", 200, 5)
    assert record.results == {"heft 1 s": record.makespan_s}
    assert [device.name for device in record.read_devices().devices] == list(preset("k40x4").device_names)


@pytest.mark.parametrize("name", ["nmt_2.training-v100x2-small", "nasnet_mobile-phone-3", "bert_large-epyc-corex4"])
def test_a_record_is_the_problem_of_its_case(tmp_path: Path, name: str) -> None:
    case = record_cases()[name]
    setup = case.build()
    record = keeping._first(
        name, Placement(np.zeros(setup.workload.graph.num_ops)), 1.0, Found("x"), (1.0, ""), tmp_path
    )
    write_record(record)
    again = recorded_setup(load_record(name, tmp_path))
    assert np.array_equal(again.op_time_s, setup.op_time_s)
    assert np.array_equal(again.coarsening.group_of_op, setup.coarsening.group_of_op)
    assert again.topology.memory_bytes.tolist() == setup.topology.memory_bytes.tolist()
    assert again.topology.links == setup.topology.links


def test_a_generated_graph_is_stored_with_its_record(tmp_path: Path) -> None:
    name = next(name for name, case in record_cases().items() if case.graph == "wavefront-24x24")
    case = record_cases()[name]
    graph = case.build().workload.graph
    record = keeping._first(name, Placement(np.zeros(graph.num_ops)), 1.0, Found("x"), (1.0, ""), tmp_path)
    write_record(record)
    assert load_record(name, tmp_path).read_graph().op_names == graph.op_names
    assert (tmp_path / "graphs" / "wavefront-24x24.json.gz").exists()


def test_only_a_better_search_replaces_the_placement_and_every_search_leaves_its_seconds(folder: Path) -> None:
    first = load_record(NAME, folder)
    better = RecordSearch(NAME, "annealing", 1.0, 0)
    line = keep_found(better, search_result(better), folder)
    second = load_record(NAME, folder)
    assert "the record" in line
    assert second.makespan_s < first.makespan_s
    assert set(second.results) == {"heft 1 s", "annealing 1 s"}
    worse = RecordSearch(NAME, "single", 1.0, 0)
    line = keep_found(worse, search_result(worse), folder)
    third = load_record(NAME, folder)
    assert "the record" not in line
    assert (third.makespan_s, third.found) == (second.makespan_s, second.found)
    assert third.results["single 1 s"] > second.makespan_s


def test_a_search_counts_as_kept_when_its_record_has_its_seconds(folder: Path) -> None:
    assert keeping.is_kept(RecordSearch(NAME, "heft", 1.0, 0), folder)
    assert not keeping.is_kept(RecordSearch(NAME, "heft", 2.0, 0), folder)
    assert not keeping.is_kept(RecordSearch("nmt_2-k40x2", "heft", 1.0, 0), folder)


def test_a_search_that_finds_nothing_leaves_the_record(folder: Path) -> None:
    before = (folder / "cases" / f"{NAME}.json").read_bytes()
    line = keep_found(
        RecordSearch(NAME, "m-sct", 1.0, 0), {"makespan_s": None, "error": "does not fit into memory"}, folder
    )
    assert "does not fit" in line
    assert (folder / "cases" / f"{NAME}.json").read_bytes() == before


def changed(record: Record, **fields: object) -> list[str]:
    return faults(dataclasses.replace(record, **fields))  # type: ignore[arg-type]


def test_the_check_notices_wrong_seconds_bounds_and_placements(folder: Path) -> None:
    record = load_record(NAME, folder)
    everything = Placement(np.zeros(record.ops))
    assert "the record says" in changed(record, makespan_s=record.makespan_s * 1.001)[0]
    assert "the record says" in changed(record, placement=everything)[0]
    assert "lower bound" in changed(record, lower_bound_s=record.makespan_s * 1.01)[0]
    assert changed(record, placement=Placement(np.zeros(3))) == ["the placement has 3 ops, the graph 200"]
    assert "has the device index 9" in changed(record, placement=Placement(np.full(record.ops, 9)))[0]


def test_the_check_notices_a_placement_that_does_not_fit(tmp_path: Path) -> None:
    name = "nmt_2.training-v100x2-small"
    setup = record_cases()[name].build()
    placement = Placement(np.zeros(setup.workload.graph.num_ops))
    seconds = setup.simulator.evaluate(placement).makespan_s
    record = keeping._first(name, placement, seconds, Found("x"), (1e-9, "none"), tmp_path)
    assert faults(record) == ["does not fit into memory"]


def placement_file(path: Path, record: Record, placement: Placement, **stated: Any) -> Path:
    save_placement(path, record.read_graph(), record.read_devices(), placement, stated)
    return path


@pytest.mark.parametrize(
    ("stated", "found_by"),
    [
        ({"planner": "annealing", "seed": 0}, Found("annealing", seed=0)),
        ({"planner": "by hand", "seed": "none"}, Found("by hand")),
        ({}, Found("mine")),
    ],
)
def test_a_better_placement_from_a_file_becomes_the_record(
    stated: dict[str, Any], found_by: Found, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = load_record(NAME, folder)
    monkeypatch.setattr(searching, "record_names", lambda: ())  # the case itself, not what ships
    better = load_record(NAME, folder).placement.assignment.copy()
    problem = recorded_setup(record).problem()
    found = gnnplace.load_planner("annealing")(problem, gnnplace.Budget(500), 0).placement
    with pytest.raises(GnnplaceError, match=r"same\.json: takes .* it stays"):
        keep_given(NAME, placement_file(tmp_path / "same.json", record, Placement(better)), folder)
    kept = keep_given(NAME, placement_file(tmp_path / "mine.json", record, found, **stated), folder)
    assert kept.makespan_s < record.makespan_s
    again = load_record(NAME, folder)
    assert (again.makespan_s, again.found) == (kept.makespan_s, found_by)
    assert faults(again) == []


def test_priorities_are_kept(folder: Path) -> None:
    record = load_record(NAME, folder)
    priorities = np.random.default_rng(0).random(record.ops)
    write_record(dataclasses.replace(record, placement=Placement(record.placement.assignment, priorities)))
    again = load_record(NAME, folder).placement.priorities
    assert again is not None
    assert again.tolist() == priorities.tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "gnnplace.record/9"}, "expected 'gnnplace.record/1'"),
        ({"placement": "AAAA"}, "the record is damaged"),
        ({"placement": "?"}, "the record is damaged"),
        ({"found": {"who": 1}}, "the record is damaged"),
        ({"makespan_s": "fast"}, "'makespan_s' is 'fast'"),
    ],
)
def test_a_damaged_file_is_one_line_with_its_name(folder: Path, change: dict[str, object], message: str) -> None:
    path = folder / "cases" / f"{NAME}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(GnnplaceError, match=message) as raised:
        load_record(NAME, folder)
    assert str(path) in str(raised.value)


def test_devices_of_one_name_are_never_replaced_by_others(tmp_path: Path) -> None:
    store_devices("k40x4", preset("k40x4"), tmp_path)
    store_devices("k40x4", preset("k40x4"), tmp_path)
    with pytest.raises(GnnplaceError, match="has other devices"):
        store_devices("k40x4", preset("k40x2"), tmp_path)


def test_the_list_has_a_line_for_each_record_with_its_gap(folder: Path) -> None:
    record = dataclasses.replace(load_record(NAME, folder), makespan_s=0.06, lower_bound_s=0.05)
    text = page([record])
    assert "| layered_200-k40x4 | 200 | 5 | 60.0 ms | 50.0 ms (work over all devices) | 20.0% | heft, 1 s |" in text
    assert "of 1 graphs" in text


SHIPPED = [name for name in record_names() if load_record(name).ops <= SMALL_OPS]


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_record_is_right(name: str) -> None:
    assert faults(load_record(name)) == []


def test_the_bench_checks_records_and_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    result = bench_records(BenchOptions(only=(NAME,)))
    assert result.summary["records"] == 1
    assert result.summary["wrong"] == 0
    assert [row["record"] for row in result.rows] == [NAME]
    with pytest.raises(GnnplaceError, match="there is no planner 'hefty'"):
        bench_records(BenchOptions(rows=("hefty",)))
    with pytest.raises(GnnplaceError, match="--only names"):
        bench_records(BenchOptions(only=("layered",), extend=tmp_path / "x.json"))
    with pytest.raises(GnnplaceError, match="give one of them"):
        bench_records(BenchOptions(only=(NAME,), rows=("heft",), extend=tmp_path / "x.json"))


def test_150_records_ship() -> None:
    assert len(record_names()) >= 150

"""The measurement store: medians by machine and model, versions of the file, and broken files."""

import dataclasses
import json
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from gnnplace.cost.calibrate import fit_roofline
from gnnplace.cost.measured import CostStore, LinkCosts
from gnnplace.cost.measurement_store import (
    _SCHEMAS,
    ENOUGH_SEGMENTS,
    MeasuredSegment,
    MeasurementStore,
)  # fmt: skip
from gnnplace.cost.stored_runs import StoredRuns
from gnnplace.devices.topology import Device
from gnnplace.errors import MeasurementFailed
from gnnplace.graph.op_graph import Op, OpGraph

HERE = {"cpu": "some", "cores": 2}
GPU = Device("cuda:0", "cuda")
RUNS = StoredRuns((1e-3, 2e-3), (3e-3, 4e-3), "cpu:0-1[spinning=1]", {"load_average": 0.5, "onnxruntime": "1.2"})
DEVICE = Device("cpu:0", "cpu-x1", peak_flops_per_s={"float32": 1e10}, memory_bandwidth_bytes_per_s=1e10)


def opened(folder: Path, machine: dict[str, object] = HERE) -> MeasurementStore:
    return MeasurementStore(folder / "some" / "measurements.sqlite", machine)


def add_op(folder: Path, model: str, signature: str, seconds: float, flops: float = 1e6) -> None:
    graph = OpGraph.build("g", [Op("a", "MatMul", signature=signature, flops=flops, bytes_accessed=1e3)])
    opened(folder).add_ops(DEVICE, model, graph, {signature: seconds})


def test_costs_are_medians_over_models_and_a_new_store_has_none(tmp_path: Path) -> None:
    assert opened(tmp_path).costs() == CostStore()
    for model, seconds in (("a", 1e-3), ("b", 2.5e-3), ("c", 2e-3)):
        add_op(tmp_path, model, "matmul", seconds)
        opened(tmp_path).add_dispatch("cpu-x1", seconds)
        opened(tmp_path).add_link(DEVICE, GPU, LinkCosts(seconds, 1 / seconds))
    costs = opened(tmp_path).costs()
    assert dict(costs.kinds["cpu-x1"].op_s) == {"matmul": 2e-3}
    assert costs.kinds["cpu-x1"].dispatch_overhead_s == 2e-3
    assert costs.links == {("cpu-x1", "cuda"): LinkCosts(2e-3, 1 / 2e-3)}
    assert costs.device_links == {("cpu:0", "cuda:0"): LinkCosts(2e-3, 1 / 2e-3)}


def test_link_costs_of_two_kinds_are_the_median_over_their_pairs_of_devices(tmp_path: Path) -> None:
    store, near, far = opened(tmp_path), LinkCosts(1e-6, 1e10), LinkCosts(9e-6, 2e9)
    gpus = [Device(f"cuda:{index}", "cuda") for index in range(4)]
    for source, target, costs in ((0, 1, near), (0, 1, near), (0, 1, near), (1, 2, far), (2, 3, far)):
        store.add_link(gpus[source], gpus[target], costs)
    found = store.costs()
    assert found.device_links == {("cuda:0", "cuda:1"): near, ("cuda:1", "cuda:2"): far, ("cuda:2", "cuda:3"): far}
    assert found.links == {("cuda", "cuda"): far}  # a pair counts once, even after several measurements


def test_hand_overs_that_were_probed_on_a_busy_machine_do_not_count(tmp_path: Path) -> None:
    slow, fast, cores = LinkCosts(0.0, 2e8), LinkCosts(0.0, 8e10), [Device(f"cpu:{core}", "cpu-x1") for core in (0, 1)]
    store = opened(tmp_path)
    for call_s, costs in ((4e-5, slow), (7e-6, None), (7.5e-6, fast)):
        store.add_dispatch("cpu-x1", call_s)
        if costs is not None:
            store.add_link(*cores, costs)
        if costs is slow:  # nothing tells yet
            assert store.costs().links == {("cpu-x1", "cpu-x1"): slow}
        elif costs is None:  # now it does, and the link is unknown
            assert store.costs().links == {}
    assert store.costs().links == {("cpu-x1", "cpu-x1"): fast}
    assert store.costs().kinds["cpu-x1"].dispatch_overhead_s == pytest.approx(7.25e-6)


def test_session_calls_that_were_lost_in_noise_are_not_the_usual_ones(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for call_s in (0.0, 0.0, 0.0, 7e-6):
        store.add_dispatch("cpu-x1", call_s)
    store.add_link(DEVICE, GPU, LinkCosts(1e-6, 1e9))
    assert store.costs().links == {("cpu-x1", "cuda"): LinkCosts(1e-6, 1e9)}


def test_a_machine_reads_only_its_own_measurements(tmp_path: Path) -> None:
    add_op(tmp_path, "a", "matmul", 1e-3)
    opened(tmp_path).add_placement_runs("a", [["cpu:0", [0, 1]]], RUNS)
    other = opened(tmp_path, {**HERE, "onnxruntime": "2.0"})
    assert other.costs() == CostStore()
    assert other.placement_runs("a", [["cpu:0", [0, 1]]]) == []
    assert opened(tmp_path, dict(reversed(HERE.items()))).costs() != CostStore()


def test_the_roofline_is_fitted_to_all_stored_ops_of_the_kind(tmp_path: Path) -> None:
    for model, signature, seconds, flops in (
        ("a", "small", 3e-4, 1e6),
        ("b", "large", 2.1e-3, 1e7),
        ("b", "fused", 0.0, 1e6),
    ):
        add_op(tmp_path, model, signature, seconds, flops)
    graph = OpGraph.build(
        "both", [Op(name, "MatMul", flops=flops, bytes_accessed=1e3) for name, flops in (("s", 1e6), ("l", 1e7), ("f", 1e6))]
    )  # fmt: skip
    expected = fit_roofline(graph, DEVICE, np.array([3e-4, 2.1e-3, 0.0]))
    found = opened(tmp_path).costs().kinds["cpu-x1"]
    assert found.launch_s == expected.launch_s
    assert found.efficiency == expected.efficiency


def test_ops_that_take_no_time_are_stored_without_a_roofline(tmp_path: Path) -> None:
    add_op(tmp_path, "a", "fused", 0.0)
    kind = opened(tmp_path).costs().kinds["cpu-x1"]
    assert (dict(kind.op_s), kind.efficiency) == ({"fused": 0.0}, None)


def test_all_runs_of_a_placed_model_are_found_by_its_model_and_pieces_with_their_time(tmp_path: Path) -> None:
    store, pieces, begin = opened(tmp_path), [["cpu:0", (0, 1)], ["cpu:1", (2,)]], time.time()
    assert store.placement_runs("a", pieces) == []
    store.add_placement_runs("a", pieces, RUNS)
    store.add_placement_runs("a", pieces, dataclasses.replace(RUNS, reference="cpu:0"))
    found = opened(tmp_path).placement_runs("a", [["cpu:0", [0, 1]], ["cpu:1", [2]]])
    assert [runs.reference for runs in found] == [RUNS.reference, "cpu:0"]
    assert begin <= found[0].measured_at <= time.time()
    assert dataclasses.replace(found[0], measured_at=0.0) == RUNS
    assert store.placement_runs("b", pieces) == store.placement_runs("a", pieces[::-1]) == []


def test_biased_ratios_of_earlier_versions_are_dropped_once_and_other_rows_stay(tmp_path: Path) -> None:
    with closing(file_of_version(tmp_path, 3)) as connection, connection:
        connection.execute("INSERT INTO dispatch VALUES (1, 'cpu-x1', 1e-5, 0.0)")
        for pieces in "pq":
            connection.execute("INSERT INTO placement VALUES (1, 'm', ?, 0.73, 0.01, 4, 1e-3, 0.0)", (pieces,))
    assert [opened(tmp_path).drop_biased_ratios() for _ in range(2)] == [2, 0]
    assert opened(tmp_path).costs().kinds["cpu-x1"].dispatch_overhead_s == 1e-5


def test_each_signature_of_a_graph_is_stored_once(tmp_path: Path) -> None:
    ops = [Op("a", signature="s", flops=3.0), Op("b", signature="s", flops=3.0), Op("c", signature="t")]
    opened(tmp_path).add_ops(DEVICE, "m", OpGraph.build("g", ops), {"s": 1e-3})
    with closing(sqlite3.connect(tmp_path / "some" / "measurements.sqlite")) as connection:
        assert connection.execute("SELECT signature, flops, seconds FROM op").fetchall() == [("s", 3.0, 1e-3)]


def test_several_threads_may_create_and_fill_the_file_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: opened(tmp_path).add_dispatch("k", float(number)), range(100, 125)))
    assert opened(tmp_path).costs().kinds["k"].dispatch_overhead_s == 112.0


def test_a_file_of_another_kind_is_refused_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "some" / "measurements.sqlite"
    path.parent.mkdir()
    path.write_text("no database" * 100)
    with pytest.raises(MeasurementFailed, match=r"measurements.sqlite: .* delete the file, or set GNNPLACE_CACHE"):
        opened(tmp_path)
    assert path.read_text().startswith("no database")


def test_a_store_of_another_version_is_refused(tmp_path: Path) -> None:
    opened(tmp_path)
    with closing(sqlite3.connect(tmp_path / "some" / "measurements.sqlite")) as connection, connection:
        connection.execute("PRAGMA user_version = 7")
    with pytest.raises(MeasurementFailed, match="measurements of version 7, this one reads 5; use the newer gnnplace"):
        opened(tmp_path)


def file_of_version(folder: Path, version: int) -> sqlite3.Connection:
    """A file of an earlier version that knows this machine."""
    (folder / "some").mkdir()
    connection = sqlite3.connect(folder / "some" / "measurements.sqlite")
    connection.executescript("".join(_SCHEMAS[:version]) + f"PRAGMA user_version = {version};")
    connection.execute("INSERT INTO machine (facts) VALUES (?)", (json.dumps(HERE, sort_keys=True),))
    return connection


def test_a_store_of_version_1_keeps_its_rows_and_gets_the_new_tables(tmp_path: Path) -> None:
    with closing(file_of_version(tmp_path, 1)) as connection, connection:
        connection.execute("INSERT INTO dispatch VALUES (1, 'cpu-x1', 1e-5, 0.0)")
    opened(tmp_path).add_kernels("cpu-x1", "m", np.array([0, 0, 2]))
    assert opened(tmp_path).costs().kinds["cpu-x1"].dispatch_overhead_s == 1e-5
    assert [row.tolist() for row in opened(tmp_path).kernels(["cpu-x1"], "m")] == [[0, 0, 2]]


def test_a_store_of_version_2_keeps_its_links_between_kinds(tmp_path: Path) -> None:
    with closing(file_of_version(tmp_path, 2)) as connection, connection:
        for latency_s in (1e-6, 2e-6, 9e-6):
            connection.execute("INSERT INTO link VALUES (1, 'cpu-x1', 'cuda', ?, 1e9, 0.0)", (latency_s,))
    old = LinkCosts(2e-6, 1e9)
    assert opened(tmp_path).costs() == CostStore({}, {("cpu-x1", "cuda"): old})
    opened(tmp_path).add_link(DEVICE, GPU, LinkCosts(4e-6, 1e9))
    found = opened(tmp_path).costs()
    assert found.device_links == {("cpu:0", "cuda:0"): LinkCosts(4e-6, 1e9)}
    assert found.links == {("cpu-x1", "cuda"): LinkCosts(3e-6, 1e9)}


def test_a_store_of_version_4_keeps_its_links_and_learns_what_further_values_take(tmp_path: Path) -> None:
    with closing(file_of_version(tmp_path, 4)) as connection, connection:
        connection.execute("INSERT INTO device_link VALUES (1, 'cpu:0', 'cuda:0', 'cpu-x1', 'cuda', 2e-6, 1e9, 0.0)")
    assert opened(tmp_path).costs().device_links == {("cpu:0", "cuda:0"): LinkCosts(2e-6, 1e9)}
    for next_value_s in (1e-6, 3e-6):
        opened(tmp_path).add_link(DEVICE, GPU, LinkCosts(4e-6, 1e9, next_value_s))
    assert opened(tmp_path).costs().device_links == {("cpu:0", "cuda:0"): LinkCosts(4e-6, 1e9, 2e-6)}


def test_kernels_are_found_by_kind_and_model(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.add_kernels("cpu", "m", np.array([0, 1]))
    store.add_kernels("cpu", "m", np.array([0, 0]))
    store.add_kernels("cuda", "m", np.array([1, 1]))
    assert [row.tolist() for row in store.kernels(["cpu"], "m")] == [[0, 0]]
    assert len(store.kernels(["cpu", "cuda"], "m")) == 2
    assert store.kernels(["cpu"], "another") == []


def test_segment_costs_are_fitted_to_fifty_or_more_segments(tmp_path: Path) -> None:
    segments = [
        MeasuredSegment("cpu", (number,), number * 1e-4, number * 1e3, number * 1e-4 + 5e-5 + number * 1e3 * 1e-10)
        for number in range(ENOUGH_SEGMENTS)
    ]
    store = opened(tmp_path)
    for _ in range(2):
        store.add_segments("m", segments[1:])
    assert store.costs() == CostStore()
    store.add_segments("n", segments)
    assert store.knows_segments(["cpu"], "n")
    assert not store.knows_segments(["cpu", "cuda"], "n")
    assert not store.knows_segments(["cpu"], "another")
    found = store.costs().kinds["cpu"].segment
    assert found is not None
    assert (found.overhead_s, found.intake_s_per_byte) == pytest.approx((5e-5, 1e-10), rel=1e-6)


def test_measurements_of_a_model_take_precedence_for_that_model(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for model, seconds in (("a", 1.0), ("b", 3.0), ("c", 4.0)):
        add_op(tmp_path, model, "shared", seconds)
    assert store.costs().kinds["cpu-x1"].op_s == {"shared": 3.0}
    assert store.costs("a").kinds["cpu-x1"].op_s == {"shared": 1.0}
    assert store.costs("unknown").kinds["cpu-x1"].op_s == {"shared": 3.0}
    for model, overhead_s in (("a", 1e-5), ("b", 9e-5)):
        found = [MeasuredSegment("cpu-x1", (i,), i * 1e-4, i, i * 1e-4 + overhead_s) for i in range(ENOUGH_SEGMENTS)]
        store.add_segments(model, found)
    overhead_of = {model: store.costs(model).kinds["cpu-x1"].segment for model in ("a", "b", "unknown")}
    assert {model: round(1e5 * costs.overhead_s, 3) for model, costs in overhead_of.items() if costs} == {
        "a": 1.0, "b": 9.0, "unknown": 5.0,
    }  # fmt: skip


def test_a_folder_that_cannot_be_made_is_an_error_with_advice(tmp_path: Path) -> None:
    (tmp_path / "some").write_text("a file")
    with pytest.raises(MeasurementFailed, match="set GNNPLACE_CACHE to a folder"):
        opened(tmp_path)

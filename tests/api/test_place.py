"""The promises of a plan and of the public functions."""

import inspect
import json
import os
import re
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import onnx
import onnx.parser
import pytest

import gnnplace
from gnnplace.api import problem_setup
from gnnplace.api.options import Keywords, PlaceOptions, shapes_of
from gnnplace.api.problem_setup import topology_of
from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.errors import GnnplaceError, InfeasiblePlacement, InvalidPlacement, UnsupportedModel
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.placement import Placement
from gnnplace.policy import POLICIES
from gnnplace.running.devices import cuda_is_offered
from gnnplace.schedule import check_schedule
from gnnplace.units import format_s
from models_zoo.networks.generated.sampling import sample_graph


def towers(count: int = 3, length: int = 4) -> OpGraph:
    """Chains side by side that meet in one op."""
    ops = [Op(f"t{tower}.{step}", flops=1e9, memory_bytes=100) for tower in range(count) for step in range(length)]
    tensors = [
        Tensor(f"t{tower}.{step}", 1000, (f"t{tower}.{step + 1}" if step + 1 < length else "join",))
        for tower in range(count)
        for step in range(length)
    ]
    return OpGraph.build("towers", [*ops, Op("join")], tensors)


def machine(num_devices: int, memory: int | None = None) -> Topology:
    names = [f"d{i}" for i in range(num_devices)]
    devices = tuple(Device(n, "d", memory, {"float32": 1e12}, 1e11, dispatch_overhead_s=1e-6) for n in names)
    return Topology("machine", devices, tuple(Link(a, b, 1e-6, 1e10) for a in names for b in names if a != b))


@pytest.mark.parametrize("planner", ["single", "round-robin", "heft", "segments", "greedy", "annealing"])
def test_a_plan_is_never_worse_than_the_single_device_nor_better_than_the_bound(planner: str) -> None:
    plan = gnnplace.place(towers(), machine(3), planner=planner, evaluations=200)
    single = next(row for row in plan.rows if row["planner"] == "single")["makespan_s"]
    assert single is not None
    assert plan.setup.bound.value_s <= plan.makespan_s <= single
    assert plan.gap >= 0
    assert check_schedule(plan.setup.workload.graph, plan.setup.topology, plan.setup.op_time_s, plan.schedule) == []


def test_the_bound_that_a_planner_proves_is_the_bound_of_the_plan() -> None:
    pytest.importorskip("ortools", reason="the extra 'optimal' is not installed")
    plan = gnnplace.place(towers(), machine(2), planner="optimal", evaluations=500)
    assert plan.bound.name == "proof by optimal"
    assert plan.setup.bound.value_s < plan.bound.value_s <= plan.makespan_s
    assert plan.gap == pytest.approx(0.0, abs=1e-5)


def test_memory_forces_a_cut_and_the_plan_fits() -> None:
    plan = gnnplace.place(towers(), machine(3, memory=8000), planner="annealing", evaluations=500)
    assert plan.evaluation.feasible
    assert max(plan.peak_memory_bytes.values()) <= 8000


def test_a_plan_that_fits_nowhere_is_not_saved(tmp_path: Path) -> None:
    plan = gnnplace.place(towers(), machine(2, memory=10), planner="heft")
    assert not plan.evaluation.feasible
    with pytest.raises(InfeasiblePlacement, match=r"d0 lacks .* add devices or memory"):
        plan.save(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_coarsened_graph_is_evaluated_op_by_op() -> None:
    plan = gnnplace.place(towers(4, 30), machine(4), planner="annealing", evaluations=300, max_groups=20)
    assert plan.setup.coarsening.graph.num_ops <= 20
    assert len(plan.placement.assignment) == plan.setup.workload.graph.num_ops == 121
    assert plan.evaluation.makespan_s == pytest.approx(plan.schedule.makespan_s)
    assert plan.summary()["groups"] <= 20


@pytest.mark.parametrize(("max_groups", "groups"), [(None, 121), (20, 20)])
def test_a_large_graph_is_placed_op_by_op_unless_max_groups_is_set(
    max_groups: int | None, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(problem_setup, "MAX_GROUPS", 100)
    plan = gnnplace.place(towers(4, 30), machine(4), evaluations=200, max_groups=max_groups)
    decided_on = plan.setup.for_planner("gnn").coarsening.graph
    assert plan.summary()["groups"] == decided_on.num_ops
    assert groups - 4 <= decided_on.num_ops <= groups
    assert {op for step in plan.record()["steps"] for op, _, _ in step["moves"]} <= set(decided_on.op_names)


def test_throughput_can_be_the_objective() -> None:
    plan = gnnplace.place(towers(1, 6), machine(3), planner="segments", objective="throughput", evaluations=300)
    latency = gnnplace.place(towers(1, 6), machine(3), planner="segments", evaluations=300)
    assert plan.evaluation.period_s < 0.6 * latency.evaluation.period_s < plan.makespan_s
    assert plan.summary()["throughput_s"] == plan.rows[-1]["throughput_s"] == plan.evaluation.period_s
    assert plan.gap == pytest.approx(plan.evaluation.period_s / plan.bound.value_s - 1.0)
    assert plan.headline().startswith(f"{format_s(plan.evaluation.period_s)} per pipelined step (simulated), ")
    assert "throughput_s" not in latency.summary() | latency.rows[-1]


def test_saving_again_replaces_everything_and_keeps_files_of_others(tmp_path: Path) -> None:
    out = tmp_path / "out"
    gnnplace.place(towers(), machine(2), planner="heft").save(out)
    (out / "notes.txt").write_text("mine")
    gnnplace.place(towers(), machine(3), planner="single").save(out)
    assert json.loads((out / "run.json").read_text())["summary"]["planner"] == "single"
    assert (out / "notes.txt").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_saving_into_a_folder_in_use_loses_no_file_of_others_and_leaves_no_old_part(tmp_path: Path) -> None:
    text = '<ir_version: 10, opset_import: ["" : 20]> g (float[2, 4] x) => (float[2, 4] y) {a = MatMul(x, w) b = Relu(a) y = Tanh(b)}'
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32), "w"))
    onnx.save(model, tmp_path / "model.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    out = tmp_path / "out"
    for folder in ("parts", "data"):
        (out / folder).mkdir(parents=True)
        (out / folder / "mine.csv").write_text("mine")
    for planner in ("round-robin", "single"):
        gnnplace.place(tmp_path / "model.onnx", "cpu:0,cpu:1", planner=planner).save(out)
    assert (out / "data" / "mine.csv").read_text() == (out / "parts" / "mine.csv").read_text() == "mine"
    assert [path.name for path in (out / "parts").glob("part-*")] == ["part-0000.onnx"]
    x = np.ones((2, 4), dtype=np.float32)
    assert gnnplace.Session(out).run(None, {"x": x})[0] == pytest.approx(np.tanh(x))


@pytest.mark.parametrize("devices", ["cpu:0,cpu:1", "k40x2"])
def test_saving_leaves_a_model_with_external_weights_usable(devices: str, tmp_path: Path) -> None:
    text = '<ir_version: 10, opset_import: ["": 20]> g (float[2, 4] x) => (float[2, 4] y) {a = MatMul(x, w) b = Relu(a) y = MatMul(b, w)}'
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32), "w"))
    path, out = tmp_path / "model.onnx", tmp_path / "out"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    gnnplace.place(path, devices, planner="round-robin").save(out)
    for file in (path, out / "placed.onnx"):
        onnx.checker.check_model(file, full_check=True)
        assert onnx.numpy_helper.to_array(onnx.load(file).graph.initializer[0]).tolist() == np.eye(4).tolist()


def test_evaluate_and_compare_agree_with_place(tmp_path: Path) -> None:
    plan = gnnplace.place(towers(), machine(3), planner="heft")
    plan.save(tmp_path)
    cost = gnnplace.evaluate(towers(), machine(3), tmp_path / "placement.json")
    assert cost["makespan_s"] == plan.makespan_s
    assert cost["segments"] >= 3
    rows = gnnplace.compare(towers(), machine(3), ["single", "heft"])
    assert [row["makespan_s"] for row in rows] == [row["makespan_s"] for row in plan.rows]


def test_a_failing_planner_is_a_row_with_an_error() -> None:
    rows = gnnplace.compare(towers(), machine(2), ["heft", "annealing"], evaluations=None, seconds=0.0)
    assert [row["makespan_s"] for row in rows] == [None, None]
    assert all("before one placement was evaluated" in (row["error"] or "") for row in rows)


def test_every_option_is_also_a_keyword_argument() -> None:
    fields = inspect.signature(PlaceOptions).parameters
    assert get_type_hints(Keywords) == get_type_hints(PlaceOptions)
    assert fields.keys() <= inspect.signature(gnnplace.place).parameters.keys()
    by_object = gnnplace.place(towers(), machine(3), PlaceOptions(planner="annealing", evaluations=50, seed=3))
    by_keywords = gnnplace.place(towers(), machine(3), PlaceOptions(seed=3), planner="annealing", evaluations=50)
    assert by_object.placement.assignment.tolist() == by_keywords.placement.assignment.tolist()
    with pytest.raises(TypeError, match="planer"):
        gnnplace.place(towers(), machine(3), planer="heft")


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("evaluations", -5, "a whole number from 0 on"), ("evaluations", 1.5, "a whole number from 0 on"),
        ("seed", None, "a whole number from 0 on"), ("max_groups", 0, "a whole number from 1 on"),
        ("seconds", -1.0, "a number from 0 on"), ("seconds", float("nan"), "a number from 0 on"),
        ("on_progress", 5, "a function"), ("custom_ops", "library.so", "a list of files"),
        ("objective", "speed", "latency or throughput"), ("dims_objective", "median", "worst or mean"),
    ],
)  # fmt: skip
def test_a_value_that_no_option_may_have_is_refused(option: str, value: object, expected: str) -> None:
    with pytest.raises(GnnplaceError, match=f"^{option} is {re.escape(repr(value))}; expected {expected}$"):
        gnnplace.place(towers(), machine(2), **{option: value})


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({"n": 1.5}, "'n' is given 1.5; expected a whole number or several"), ({"n": [1, "a"]}, "'n' is given"),
        ({"n": None}, "'n' is given None"), ({"n": "4"}, "'n' is given '4'"), ({1: 4}, "dimension 1 is given 4"),
        ({"n": 10**30}, "'n' is given"), ({"n": []}, "'n' is given no size"), ("n=4", "dims is 'n=4'; expected a dictionary"),
    ],
)  # fmt: skip
def test_dimensions_that_are_no_sizes_are_refused(dims: Any, message: str) -> None:
    with pytest.raises(UnsupportedModel, match=message):
        PlaceOptions(dims=dims)


def test_sizes_may_be_numbers_of_numpy() -> None:
    assert shapes_of({"n": np.int64(4), "m": np.array([1, 8])}) == ({"n": 4, "m": 8}, {"n": 4, "m": 1})


def test_arguments_of_another_kind_are_refused_in_one_line() -> None:
    for call, message in (
        (lambda: gnnplace.place(towers(), machine(2), planner=5), "the planner is 5; expected a name"),
        (lambda: gnnplace.place(towers(), machine(2), "heft"), "the options are 'heft'; expected PlaceOptions"),
        (lambda: gnnplace.compare(towers(), machine(2), "heft"), "the planners are the text 'heft'; expected a list"),
        (lambda: gnnplace.place(b"model", machine(2)), "the model is 'bytes'; expected a path"),
    ):
        with pytest.raises(GnnplaceError, match=message):
            call()


def test_a_problem_is_the_one_that_place_solves() -> None:
    problem = gnnplace.problem(towers(4, 30), machine(4), max_groups=20)
    solution = gnnplace.load_planner("annealing")(problem, gnnplace.Budget(evaluations=300), seed=0)
    plan = gnnplace.place(towers(4, 30), machine(4), planner="annealing", evaluations=300, max_groups=20)
    assert solution.placement.assignment.tolist() == plan.solution.placement.assignment.tolist()


def test_unknown_public_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'plac'"):
        gnnplace.plac  # noqa: B018 - the access is the test
    assert set(gnnplace.__all__) <= set(dir(gnnplace))
    assert all(getattr(gnnplace, name) is not None for name in gnnplace.__all__)


def test_numbers_in_the_run_record_are_those_of_the_plan(tmp_path: Path) -> None:
    plan = gnnplace.place(towers(), machine(3), planner="annealing", evaluations=100, seed=4)
    record = json.loads((plan.save(tmp_path / "out") / "run.json").read_text())
    assert record["summary"]["makespan_s"] == plan.makespan_s
    assert np.allclose(record["ops"]["end_s"], plan.schedule.end_s)
    assert record["ops"]["device"] == plan.placement.assignment.tolist()
    assert len(record["edges"]) == len(plan.setup.workload.graph.consumers)
    assert record["history"][-1][2] == pytest.approx(plan.solution.objective_s)


def test_only_the_learned_planner_takes_a_policy(tmp_path: Path) -> None:
    with pytest.raises(GnnplaceError, match="planner 'heft' takes no policy"):
        gnnplace.place(towers(), machine(2), planner="heft", policy=tmp_path / "p.safetensors")
    with pytest.raises(GnnplaceError, match=r"absent\.json: cannot be read"):
        gnnplace.place(towers(), machine(2), planner="gnn", policy=tmp_path / "absent.safetensors")
    with pytest.raises(GnnplaceError, match="there is no policy 'unifrom'; did you mean 'uniform'"):
        gnnplace.place("absent.onnx", machine(2), policy="unifrom")


def test_the_name_of_a_policy_chooses_it_for_place_and_compare() -> None:
    graph = sample_graph(np.random.default_rng(4), 80)
    steps = {name: gnnplace.place(graph, "k40x4", evaluations=200, policy=name).makespan_s for name in POLICIES}
    assert len(set(steps.values())) == len(POLICIES)
    assert gnnplace.place(graph, "k40x4", evaluations=200).makespan_s == steps["shipped"]
    (_, row) = gnnplace.compare(graph, "k40x4", ["heft", "gnn"], evaluations=200, policy="uniform")
    assert row["makespan_s"] == steps["uniform"]


def test_auto_lists_every_core_of_this_process_sets_of_them_and_no_gpu_that_cannot_be_used() -> None:
    names = topology_of("auto").device_names
    cores = [name for name in names if name.startswith("cpu:")]
    allowed = sorted(os.sched_getaffinity(0))
    assert cores[: len(allowed)] == [f"cpu:{core}" for core in allowed]
    assert all(name.endswith("[spinning=1]") for name in cores[len(allowed) :])
    assert len(names) == len(cores) or cuda_is_offered()


def test_a_plan_warns_when_the_single_device_is_the_answer_and_spreads_parallel_towers() -> None:
    chain = towers(1, 6)
    plan = gnnplace.place(chain, machine(3), planner="round-robin")
    assert len(set(plan.placement.assignment.tolist())) == 1
    (warning,) = plan.warnings
    assert warning == "the placement of 'round-robin' does not beat the best single device, which is the answer"
    spread = gnnplace.place(towers(), machine(3), planner="heft")
    assert (spread.warnings, len(set(spread.placement.assignment.tolist()))) == ((), 3)


OPS = [Op(name, time_s={"a": 2.0, "b": 1.0}, memory_bytes=6) for name in ("first", "second")]
PAIR = OpGraph.build("pair", OPS, [Tensor("first", 1, ("second",))])
TWO = Topology("pair", (Device("a", memory_bytes=20), Device("b", memory_bytes=10)), (Link("a", "b", 0.5, 1.0),))


def test_the_plan_of_a_fixed_placement_has_the_seconds_of_its_ops_and_transfers() -> None:
    plan = gnnplace.plan_of(PAIR, TWO, Placement(np.array([0, 1])))
    assert plan.makespan_s == 2.0 + 0.5 + 1.0 + 1.0
    assert plan.makespan_s == gnnplace.evaluate(PAIR, TWO, Placement(np.array([0, 1])))["makespan_s"]
    assert plan.schedule.start_s.tolist() == [0.0, 3.5]
    assert (plan.solution.evaluations, plan.rows) == (1, ())


def test_a_fixed_placement_is_saved_with_the_planner_given(tmp_path: Path) -> None:
    plan = gnnplace.plan_of(PAIR, TWO, Placement(np.array([0, 0])), seed=3)
    plan.save(tmp_path)
    saved = json.loads((tmp_path / "placement.json").read_text())
    assert (saved["planner"], saved["seed"], saved["assignment"]) == ("given", 3, {"first": "a", "second": "a"})
    assert plan.record()["kept"] == "given"


def test_a_fixed_placement_that_does_not_fit_is_infeasible_and_not_saved(tmp_path: Path) -> None:
    plan = gnnplace.plan_of(PAIR, TWO, Placement(np.array([1, 1])))
    assert not plan.evaluation.feasible
    with pytest.raises(InfeasiblePlacement, match="b lacks"):
        plan.save(tmp_path)


def test_a_fixed_placement_of_another_graph_is_refused() -> None:
    with pytest.raises(InvalidPlacement):
        gnnplace.plan_of(PAIR, TWO, Placement(np.array([0, 0, 0])))

"""Answers, files and errors of the commands, for users and programs."""

import json
import os
from pathlib import Path

import numpy as np
import onnx
import pytest

from gnnplace.cli.run_placed import answer_lines
from gnnplace.cost.measured import read_costs
from gnnplace.graph.json_format import write_graph
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.measuring import busy
from gnnplace.measuring.timing import StoppingRule
from models_zoo.networks.light import write_light_model
from tests.cli.calls import Cli
from tests.quick_measuring import measure_quickly

QUICK = StoppingRule(warmup=1, min_repeats=6, max_repeats=6)
TWO_OPS = """<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y) { a = Relu(x)  y = Exp(a) }"""
BRANCHES = """<ir_version: 8, opset_import: ["": 17]> g (float[64, 64] x) => (float[64, 64] y)
    { a = MatMul(x, x)  b = Exp(x)  c = MatMul(a, b)  d = Relu(a)  e = MatMul(d, b)  y = Add(c, e) }"""
PLACE_KEYS = {
    "model", "ops", "groups", "planner", "objective", "makespan_s", "measured", "feasible", "lower_bound_s", "gap",
    "compared", "evaluations", "wall_s", "seed", "out",
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "light_squeezenet.onnx"
    write_light_model("squeezenet", path)
    return path


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    ops = [Op(name, "T", {"k40": 1.0 if name == "a" else 2.0}, devices=("k40",)) for name in "abcd"]
    tensors = [Tensor("a", 8, ("b", "c")), Tensor("b", 8, ("d",)), Tensor("c", 8, ("d",))]
    path = tmp_path / "graph.json"
    write_graph(OpGraph.build("diamond", ops, tensors), path)
    return path


def test_place_writes_everything_and_the_placed_model_runs(cli: Cli, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "placed"
    answer = cli.json(f"place {model} --devices cpu:0,cpu:1 --planner heft --out {out}")
    assert set(answer) == PLACE_KEYS
    assert set(answer["compared"]) == {"single", "heft"}
    assert answer["out"] == str(out)
    assert sorted(path.name for path in out.iterdir()) == [
        "parts",
        "placed.onnx",
        "placement.json",
        "report.html",
        "run.json",
    ]
    assert json.loads((out / "run.json").read_text())["summary"] == answer

    ran = cli.json(f"run {out} --output {tmp_path / 'y.npz'} --repeat 2")
    assert ran["repeats"] == 2
    assert ran["throughput_s"] is not None
    assert ran["max_in_flight"] >= 2
    assert cli.json(f"run {out}")["throughput_s"] is None
    with np.load(tmp_path / "y.npz") as outputs:
        assert {name: list(outputs[name].shape) for name in outputs.files} == {
            name: facts["shape"] for name, facts in ran["outputs"].items()
        }

    evaluated = cli.json(f"evaluate {model} --devices cpu:0,cpu:1 --placement {out / 'placement.json'}")
    assert evaluated["makespan_s"] == pytest.approx(answer["makespan_s"])
    assert evaluated["feasible"]
    assert evaluated["segments"] >= 1
    assert cli.json(f"report {out}")["report"] == str(out / "report.html")


def test_an_op_graph_is_placed_and_beats_the_single_device(cli: Cli, graph: Path) -> None:
    answer = cli.json(f"place {graph} --devices k40x2 --planner greedy --evaluations 100")
    assert answer["compared"]["single"] == pytest.approx(7.0)
    assert answer["makespan_s"] == pytest.approx(5.0, abs=0.01)
    assert answer["lower_bound_s"] == pytest.approx(5.0)
    assert answer["evaluations"] <= 100


def test_compare_prints_a_row_per_planner(cli: Cli, graph: Path) -> None:
    planners = "single,round-robin,heft,segments,greedy,annealing"
    answer = cli.json(f"compare {graph} --devices k40x2 --planners {planners} --evaluations 50")
    assert [row["planner"] for row in answer["rows"]] == planners.split(",")
    assert all(
        set(row) == {"planner", "makespan_s", "gap", "evaluations", "wall_s", "feasible", "error"}
        for row in answer["rows"]
    )
    assert all(row["evaluations"] <= 50 and row["feasible"] and row["error"] is None for row in answer["rows"])


def test_planners_and_devices_are_listed(cli: Cli) -> None:
    assert {"single", "heft", "annealing", "gnn"} <= set(cli.json("planners"))
    answer = cli.json("devices k40x2")
    assert [device["name"] for device in answer["devices"]] == ["k40:0", "k40:1", "cpu:0"]
    assert answer["format"] == "gnnplace.topology/1"


BAD_FILES = {
    "empty.onnx": b"", "cut.onnx": b"\x08\x07\x12\x04test\x3a\xff\xff",
    "nan.json": b'{"format": "gnnplace.graph/1", "name": "n", "ops": [{"name": "a", "flops": NaN}], "tensors": []}',
    "nothing.json": b'{"format": "gnnplace.topology/1", "devices": [], "links": []}',
    "islands.json": json.dumps({"format": "gnnplace.topology/1", "links": [], "devices": [
        {"name": name, "kind": "k40", "memory_bytes": None, "peak_flops_per_s": {"float32": 1e12},
         "memory_bandwidth_bytes_per_s": 1e11, "dispatch_overhead_s": 0.0, "slots": 1} for name in ("x", "y")]}).encode(),
    "big.json": json.dumps({"format": "gnnplace.graph/1", "name": "big", "tensors": [],
        "ops": [{"name": "a", "flops": 1.0, "memory_bytes": 2**50}]}).encode(),
    "unknown.json": json.dumps({"format": "gnnplace.placement/1", "devices": ["k40:0", "k40:1", "cpu:0"],
        "assignment": {"a": "k40:0", "bb": "k40:0", "c": "k40:0", "d": "k40:0"}}).encode(),
    "far.json": json.dumps({"format": "gnnplace.placement/1", "devices": ["k40:9"], "assignment": {"a": "k40:9"}}).encode(),
    "misspelt.json": b'{"format": "gnnplace.topology/1", "devices": [{"name": "x"}], "link": []}',
    "split.json": json.dumps({"format": "gnnplace.placement/1", "devices": ["x", "y"],
        "assignment": {"a": "x", "b": "y", "c": "x", "d": "x"}}).encode(),
}  # fmt: skip
BAD_INPUT = [
    ("place {dir}/absent.onnx --devices k40x2", 2, "absent.onnx"),
    ("place {dir}/empty.onnx --devices k40x2", 2, "empty.onnx"),
    ("place {dir}/cut.onnx --devices k40x2", 2, "cut.onnx"),
    ("place {dir} --devices k40x2", 2, "{dir.name}"),
    ("place {dir}/nan.json --devices k40x2", 2, "nan"),
    ("place {graph} --devices {dir}/nothing.json", 2, "no device"),
    ("evaluate {graph} --devices {dir}/islands.json --placement {dir}/split.json", 2, "no link"),
    ("place {dir}/big.json --devices k40x2 --planner heft", 1, "lacks"),
    ("evaluate {graph} --devices k40x2 --placement {dir}/unknown.json", 2, "'bb'"),
    (
        "evaluate {graph} --devices k40x2 --placement {dir}/far.json",
        2,
        "'k40:9'; the devices here are k40:0, k40:1, cpu:0",
    ),
    ("place {graph} --devices {dir}/misspelt.json", 2, "unknown key 'link'; did you mean 'links'?"),
    ("place {graph} --devices k40x2 --trace {dir}", 2, "{dir}: is a folder; name a file"),
    ("place {graph} --devices k40x2 --trace /", 2, "/: is a folder; name a file"),
    ("place {graph} --devices k40x2 --trace {graph}/t.json", 2, "graph.json: is a file, so that nothing can be in it"),
    ("profile {graph} --devices cpu:0 --out {dir}", 2, "{dir}: is a folder; name a file"),
    ("report {dir} --trace {dir}", 2, "{dir}: is a folder; name a file"),
    ("run {dir} --output {dir}", 2, "{dir}: is a folder; name a file"),
    ("place {graph} --devices k40x2 --dim batch=4 --dim batch=5", 2, "batch has sizes already"),
    ("place {graph} --devices k40x2 --dim batch=99999999999999999999", 2, "'batch' is given 99999999999999999999"),
    ("compare {graph} --devices k40x2 --planners heft,single --seconds 0", 1, "before one placement was evaluated"),
    ("place {graph} --devices k40x2 --dim batch", 2, "NAME=N"),
    ("place {graph} --devices cpu:0 --measure", 2, "ONNX model"),
    ("place {graph} --devices k40x2 --evaluations 0", 2, "--evaluations"),
    ("run {dir}", 2, "manifest.json"),
    ("report {dir}", 2, "run.json"),
]


@pytest.mark.parametrize(("line", "expected", "message"), BAD_INPUT)
def test_bad_input_gets_one_clear_line_and_leaves_nothing(
    cli: Cli, tmp_path: Path, graph: Path, line: str, expected: int, message: str
) -> None:
    for name, content in BAD_FILES.items():
        (tmp_path / name).write_bytes(content)
    out = tmp_path / "out"
    option = f" --out {out}" if line.startswith("place") else ""
    code, printed, errors = cli(line.format(dir=tmp_path, graph=graph) + option)
    assert code == expected
    lines = [text for text in errors.splitlines() if not text.startswith("warning:")]
    assert len(lines) == 1, errors
    assert message.format(dir=tmp_path) in lines[0]
    assert "Traceback" not in errors + printed
    assert not out.exists()


def test_a_file_in_place_of_the_folder_is_refused_before_the_search(
    cli: Cli, graph: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def searched(*_: object, **__: object) -> None:
        raise AssertionError("searched first")

    monkeypatch.setattr("gnnplace.api.place", searched)
    before = graph.read_bytes()
    code, out, errors = cli(f"place {graph} --devices k40x2 --out {graph}")
    assert (code, out, graph.read_bytes()) == (2, "", before)
    assert "is a file; choose another name for the folder" in errors


def test_a_measured_search_returns_a_measured_answer_that_runs(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure_quickly(QUICK, monkeypatch.setattr)
    model = tmp_path / "branches.onnx"
    onnx.save(onnx.parser.parse_model(BRANCHES), model)
    out, devices = tmp_path / "measured", "cpu:0,cpu:1" if len(os.sched_getaffinity(0)) > 1 else "cpu:0"
    answer = cli.json(f"place {model} --devices {devices} --measure --planner greedy --evaluations 4 --out {out}")
    assert set(answer["measured"]) == {
        "median_s", "spread_s", "repeats", "single_session_s", "best_session_s", "best_session",
    }  # fmt: skip
    assert answer["makespan_s"] == answer["measured"]["median_s"] <= answer["measured"]["best_session_s"]
    assert set(answer["compared"]) - {"plain session"} == {"greedy", "single", "heft", "annealing"}
    assert answer["gap"] == pytest.approx(answer["makespan_s"] / answer["lower_bound_s"] - 1)
    assert answer["evaluations"] <= 4
    assert json.loads((out / "placement.json").read_text())["evaluation"]["evaluator"] == "measured"
    run = json.loads((out / "run.json").read_text())
    assert run["kept"] in answer["compared"]
    assert run["kept"] == json.loads((out / "placement.json").read_text())["planner"]
    low, high = run["measured"].get("difference_interval", (0.0, 0.0))
    assert low <= run["measured"].get("difference", 0.0) <= high
    search = run["measured"]["search"]
    assert 1 <= search["executed"] <= 4
    assert (search["recalled"], search["failed"], search["retried"]) == (0, 0, 0)
    assert 0 < search["executing_s"] < search["wall_s"]
    assert cli.json(f"run {out}")["devices"]

    evaluated = cli.json(f"evaluate {model} --devices {devices} --measure --placement {out / 'placement.json'}")
    assert evaluated["evaluator"] == "measured"
    assert evaluated["repeats"] == 6
    assert evaluated["makespan_s"] > 0


@pytest.mark.parametrize("command", ["place", "evaluate", "profile"])
def test_a_busy_device_is_measured_only_with_force(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    measure_quickly(QUICK, monkeypatch.setattr)
    monkeypatch.setattr(busy, "busy_shares", lambda devices: dict.fromkeys(devices, 0.75))
    model, out = tmp_path / "two.onnx", tmp_path / "placed"
    onnx.save(onnx.parser.parse_model(TWO_OPS), model)
    cli.json(f"place {model} --devices cpu:0 --planner single --out {out}")
    arguments = {
        "place": ["--measure", "--evaluations", "2"],
        "evaluate": ["--measure", "--placement", str(out / "placement.json")],
        "profile": ["--out", str(tmp_path / "costs.json")],
    }[command]
    line = [command, str(model), "--devices", "cpu:0", *arguments]
    code, printed, errors = cli(*line)
    assert (code, printed) == (1, "")
    assert "other work runs on cpu:0 (75%)" in errors
    assert len(errors.splitlines()) == 1
    code, _, errors = cli(*line, "--force")
    assert code == 0, errors
    assert "other work runs on cpu:0 (75%): measured seconds may be too long" in errors


def test_profile_stores_costs_by_signature(
    cli: Cli, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure_quickly(QUICK, monkeypatch.setattr)
    answer = cli.json(f"profile {model} --devices cpu:0 --out {tmp_path / 'costs.json'}")
    (kind,) = read_costs(tmp_path / "costs.json").kinds.values()
    assert [facts["ops"] for facts in answer["kinds"].values()] == [len(kind.op_s)]
    assert any("Conv" in signature for signature in kind.op_s)


def test_one_run_states_no_spread() -> None:
    found = {"devices": ["cpu:0"], "median_s": 2e-3, "spread_s": 0.0, "repeats": 1, "throughput_s": None}
    assert answer_lines(found) == ["1 run on cpu:0: 2.00 ms; --repeat N measures it"]
    assert answer_lines(found | {"repeats": 3, "spread_s": 1e-4}) == ["3 runs on cpu:0: 2.00 ms +- 100 us (median)"]
    # Few requests fill the pipeline once, which shows no spread.
    pipelined = {"repeats": 3, "spread_s": 1e-4, "throughput_s": 1e-3, "throughput_spread_s": 0.0, "max_in_flight": 3}
    assert answer_lines(found | pipelined)[1] == "pipelined, up to 3 at once: 1.00 ms per request"
    spread = answer_lines(found | pipelined | {"throughput_spread_s": 1e-4})[1]
    assert spread == "pipelined, up to 3 at once: 1.00 ms +- 100 us per request"

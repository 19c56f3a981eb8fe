"""A second real provider: OpenVINO on the CPU, beside ONNX Runtime's own kernels.

`onnxruntime-openvino` shares its files with `onnxruntime`, so `make test` unpacks it into `build/openvino`, and the first
test runs the others in a process that finds it there.
"""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import gnnplace
from gnnplace.cli.main import _run as run_command
from gnnplace.devices.spec import load_topology
from gnnplace.errors import MeasurementFailed
from gnnplace.measuring.profile import measured_costs, profile_model
from gnnplace.onnx_io.part import Part
from gnnplace.placement import Placement
from gnnplace.running.compiled.devices import CompiledDevices
from gnnplace.running.devices import create_session, parse_device
from gnnplace.running.runner import PlacedRunner
from models_zoo.networks.light import write_light_model
from tests.measuring_processes import CORES, QUICK, parsed, read
from tests.quick_measuring import measure_quickly

BUILD = Path(__file__).parents[2] / "build" / "openvino"
PLAIN, OTHER = f"cpu:{CORES[0]}", f"ep:OpenVINO:CPU[cores={CORES[-1]}]"
SPEC = f"{PLAIN},{OTHER}"

is_here = "OpenVINOExecutionProvider" in ort.get_available_providers()
two_cores = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
openvino = pytest.mark.skipif(not is_here, reason="runs in the process that the first test of this file starts")


@pytest.mark.skipif(is_here, reason="this process has OpenVINO already")
@pytest.mark.skipif(not (BUILD / "onnxruntime").is_dir(), reason=f"no OpenVINO in {BUILD}; make test unpacks it")
def test_the_other_tests_of_this_file_pass_where_openvino_is_installed(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(BUILD), str(root)])
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", tmp_path / "inner", __file__],
        env={**os.environ, "PYTHONPATH": path}, cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout
    assert ", 1 skipped in" in run.stdout.splitlines()[-1]  # this test itself, and no other


@pytest.fixture
def real_model(own_cache: None, tmp_path: Path) -> Path:
    """SqueezeNet, with an empty cache of costs."""
    write_light_model("squeezenet", tmp_path / "squeezenet.onnx")
    return tmp_path / "squeezenet.onnx"


@openvino
@two_cores
def test_a_real_model_cut_between_the_providers_has_the_outputs_of_one_session(
    real_model: Path, tmp_path: Path
) -> None:
    plan = gnnplace.place(real_model, SPEC, gnnplace.PlaceOptions(planner="single"))
    by_tens = Placement(np.arange(len(plan.placement.assignment)) // 10 % 2)
    dataclasses.replace(plan, placement=by_tens).save(tmp_path / "placed")
    plain = create_session(real_model, parse_device(PLAIN))
    (wanted,) = plain.get_inputs()
    feed = {wanted.name: np.random.default_rng(0).standard_normal(wanted.shape).astype(np.float32)}
    with gnnplace.Session(tmp_path / "placed") as session:
        for _ in range(2):
            np.testing.assert_allclose(session.run(None, feed)[0], plain.run(None, feed)[0], atol=1e-4)
        assert set(session.get_providers()) == {"CPUExecutionProvider", "OpenVINOExecutionProvider"}


@openvino
@two_cores
def test_parts_of_both_libraries_run_in_compiled_threads_and_leave_the_caller_where_it_was() -> None:
    first = parsed("(float[4, 4] x) => (float[4, 4] y) { y = Exp(x) }").SerializeToString()
    second = parsed("(float[4, 4] y) => (float[4, 4] z) { z = Relu(y) }").SerializeToString()
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    before = os.sched_getaffinity(0)
    for devices in ((PLAIN, OTHER), (OTHER, PLAIN), (OTHER, f"ep:OpenVINO:CPU[cores={CORES[0]}]")):
        parts = [Part("1", devices[0], first, ("x",), ("y",)), Part("2", devices[1], second, ("y",), ("z",))]
        with PlacedRunner(parts, ["x"], ["z"]) as runner:
            assert isinstance(runner.devices, CompiledDevices)
            assert runner.devices.providers() == [*dict.fromkeys(parse_device(name).provider for name in devices)]
            for _ in range(30):
                np.testing.assert_allclose(runner.run(None, {"x": x})[0], np.exp(x), rtol=1e-5)
        with PlacedRunner([Part("1", devices[0], first, ("x",), ("y",))], ["x"], ["y"]) as runner:
            runner.run(None, {"x": x})
        assert os.sched_getaffinity(0) == before


@openvino
@two_cores
def test_a_part_of_compiled_threads_with_an_op_that_openvino_cannot_run_is_named() -> None:
    parts = [
        Part("1", PLAIN, parsed("(float[4, 4] x) => (float[4, 4] y) { y = Exp(x) }").SerializeToString(), ("x",), ("y",)),
        Part("2", OTHER, parsed("(float[4, 4] y) => (float z) { z = Det(y) }").SerializeToString(), ("y",), ("z",)),
    ]  # fmt: skip
    with pytest.raises(MeasurementFailed, match=r"left to the CPU: Det \(1\); place them"):
        PlacedRunner(parts, ["x"], ["z"])


@openvino
def test_openvino_may_leave_an_op_that_moves_data_to_its_cores() -> None:
    text = "(float[4, 4] x) => (float[2, 4] y) <int64[1] b = {0}, int64[1] e = {2}> { y = Slice(x, b, e) }"
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    session = create_session(parsed(text).SerializeToString(), parse_device(OTHER))
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x[:2])


@openvino
def test_openvino_runs_every_op() -> None:
    data = parsed("(float[N, 4] x) => (float[N, 4] y) { a = Exp(x) y = Relu(a) }").SerializeToString()
    (part,) = create_session(data, parse_device(OTHER)).get_provider_graph_assignment_info()
    found = part.ep_name, [node.op_type for node in part.get_nodes()]
    assert found == ("OpenVINOExecutionProvider", ["Exp", "Relu"])


@openvino
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "(float[4, 4] x) => (float y, float[K] z) { a = Relu(x) y = Det(a) z = Unique(a) }",
            r"cannot run these ops, which OpenVINOExecutionProvider left to the CPU: Det \(1\), Unique \(1\);",
        ),
        (
            "(float[4, 4] x, bool on) => (float y) { a = Relu(x) y = If (on) <then_branch = t () => (float p) "
            "{ p = Det(a) }, else_branch = e () => (float q) { q = ReduceSum<keepdims = 0>(a) }> }",
            "OpenVINOExecutionProvider refuses the model: OpenVINO does not support the following ONNX operations: Det",
        ),
    ],
)
def test_ops_that_openvino_cannot_run_are_named_and_do_not_run_on_the_cpu(text: str, message: str) -> None:
    with pytest.raises(MeasurementFailed, match=message) as error:
        create_session(parsed(text).SerializeToString(), parse_device(OTHER))
    assert "\n" not in str(error.value)


@openvino
def test_an_option_unknown_to_openvino_is_refused() -> None:
    data = parsed("(float[4] x) => (float[4] y) { y = Exp(x) }").SerializeToString()
    with pytest.raises(MeasurementFailed, match="OpenVINOExecutionProvider refuses the model"):
        create_session(data, parse_device("ep:OpenVINO:CPU[no_such_option=1]"))


_OWN_PROCESS = """
import os, sys
from contextlib import suppress
import numpy as np
from gnnplace.onnx_io.part import Part
from gnnplace.running.runner import PlacedRunner
from tests.measuring_processes import CORES, parsed
from tests.patience import until

def elsewhere():
    cores = {}
    for task in set(os.listdir("/proc/self/task")) - before:
        with suppress(ProcessLookupError):  # a thread that has ended
            cores[task] = os.sched_getaffinity(int(task))
    return {task: found for task, found in cores.items() if found != {CORES[-1]}}

before = set(os.listdir("/proc/self/task"))
data = parsed("(float[64, 64] x) => (float[64, 64] y) { a = MatMul(x, x) y = Exp(a) }").SerializeToString()
with PlacedRunner([Part("p", sys.argv[1], data, ("x",), ("y",))], ["x"], ["y"]) as runner:
    runner.run(None, {"x": np.zeros((64, 64), np.float32)})
    assert set(os.listdir("/proc/self/task")) > before, "OpenVINO has no threads of its own"
    until(lambda: not elsewhere())  # a thread may begin elsewhere and go to its core later
"""


@openvino
def test_the_threads_of_openvino_stay_on_the_cores_in_the_device_name() -> None:
    """In a process of its own, where nothing else begins threads meanwhile."""
    run = subprocess.run([sys.executable, "-c", _OWN_PROCESS, OTHER], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@openvino
def test_ops_share_the_seconds_of_the_session_as_parts_of_the_model_take_them(tmp_path: Path) -> None:
    text = "(float[256, 256] x) => (float[256, 256] z) { a = MatMul(x, x) y = Asin(a) z = Relu(y) }"
    model = read(text, tmp_path)
    op_s, _ = profile_model(model, OTHER, {"x": np.zeros((256, 256), np.float32)}, QUICK)
    product, sine, relu = op_s.tolist()
    assert min(product, sine) > 2 * relu > 0  # by their roofline, the arc sine and the ReLU take as long as each other


@openvino
@two_cores
def test_openvino_devices_have_a_kind_costs_and_links_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure_quickly(QUICK, monkeypatch.setattr)
    model = read("(float[64, 64] x) => (float[64, 64] y) { a = MatMul(x, x) y = Exp(a) }", tmp_path)
    topology = load_topology(SPEC)
    plain, other = (device.kind for device in topology.devices)
    store, _, _ = measured_costs(model, topology, np.random.default_rng(0), QUICK)
    assert store.kinds.keys() == {plain, other}
    assert store.kinds[plain].op_s.keys() == store.kinds[other].op_s.keys()
    assert store.links.keys() == {(plain, other), (other, plain)}


@openvino
def test_auto_has_the_devices_of_openvino_where_it_runs_the_model(own_cache: None, tmp_path: Path) -> None:
    for op, result, is_there in (("Relu", "float[4, 4] y", True), ("Det", "float y", False)):
        model = read(f"(float[4, 4] x) => ({result}) {{ a = Exp(x) y = {op}(a) }}", tmp_path)
        setup = gnnplace.set_up(model.path, "auto")
        assert any(name.startswith("ep:OpenVINO") for name in setup.topology.device_names) == is_there
        heard = [text.partition(": ")[0] for text in setup.warnings]
        assert heard == ["auto leaves out OpenVINOExecutionProvider"] * (not is_there)


@openvino
@two_cores
def test_a_real_model_is_placed_by_measuring_and_runs(
    real_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measure_quickly(QUICK, monkeypatch.setattr)
    out = str(tmp_path / "placed")
    command = ["place", str(real_model), "--devices", SPEC, "--measure", "--evaluations", "3", "--out", out, "--json"]
    assert run_command([*command, "--planner", "annealing"]) == 0, capsys.readouterr().err
    assert json.loads(capsys.readouterr().out)["measured"]["median_s"] > 0
    assert run_command(["run", out]) == 0

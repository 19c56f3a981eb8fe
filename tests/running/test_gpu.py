"""Real GPUs: whole ones, limited ones and slices of one; skipped where there is none."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from gnnplace import installation
from gnnplace.devices.cuda_driver import gpus
from gnnplace.devices.detect import halves
from gnnplace.devices.spec import load_topology
from gnnplace.errors import MeasurementFailed
from gnnplace.measuring.link_probe import probe_link, probing_process
from gnnplace.measuring.profile import profile_model
from gnnplace.onnx_io.element_types import numpy_dtype
from gnnplace.onnx_io.part import Part
from gnnplace.running.devices import create_session, cuda_is_offered, parse_device
from gnnplace.running.gpu_streams import slice_stream
from gnnplace.running.runner import PlacedRunner
from gnnplace.running.values import as_numpy
from tests.measuring_processes import CORE, QUICK, parsed, read

CHAIN = ("MatMul(x, x)", "Tanh(v0)", "MatMul(v1, v1)", "Softmax(v2)", "MatMul(v3, v1)", "Exp(v4)")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda_is_offered(), reason="ONNX Runtime here has no CUDA provider"),
    pytest.mark.skipif(not gpus(), reason="no GPU here"),
]


def op(index: int) -> str:
    return f"v{index} = {CHAIN[index]}"


def placed(devices: list[str]) -> list[Part]:
    """A part for each op of the chain, on the devices in turn."""
    parts = []
    for index, call in enumerate(CHAIN):
        inputs = tuple(dict.fromkeys(call[call.index("(") + 1 : -1].split(", ")))
        declared = ", ".join(f"float[64, 64] {name}" for name in inputs)
        data = parsed(f"({declared}) => (float[64, 64] v{index}) {{ {op(index)} }}").SerializeToString()
        parts.append(Part(op(index), devices[index % len(devices)], data, inputs, (f"v{index}",)))
    return parts


def check_against_plain(devices: list[str]) -> None:
    """The chain on these devices has the outputs of a plain session on a core in each of several runs.

    The GPU computes in full FP32: with TensorFloat-32, its default, some of the 4,096 values differ by more than a hundredth.
    """
    text = "(float[64, 64] x) => (float[64, 64] v1, float[64, 64] v5) { " + " ".join(map(op, range(len(CHAIN)))) + " }"
    feed = {"x": np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)}
    expected = create_session(parsed(text).SerializeToString(), parse_device(CORE)).run(None, feed)
    with PlacedRunner(placed(devices), ["x"], ["v1", "v5"]) as runner:
        for _ in range(20):
            for found, wanted in zip(runner.run(None, feed), expected, strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


def test_a_gpu_and_a_core_have_the_outputs_of_a_plain_session() -> None:
    check_against_plain(["cuda:0[use_tf32=0]", CORE])
    check_against_plain(["cuda:0[use_tf32=0]"])


def test_a_model_beyond_the_memory_limit_fails_with_the_name_of_the_device() -> None:
    data = parsed("(float[4096, 4096] x) => (float[4096, 4096] y) { a = MatMul(x, x) y = Exp(a) }").SerializeToString()
    part = Part("large", "cuda:0[memory=16MiB]", data, ("x",), ("y",))
    with (
        pytest.raises(MeasurementFailed, match=r"'cuda:0\[memory=16MiB\]'"),
        PlacedRunner([part], ["x"], ["y"]) as runner,
    ):
        runner.run(None, {"x": np.zeros((4096, 4096), np.float32)})


def test_an_op_without_a_kernel_is_named_and_does_not_run_on_the_cpu() -> None:
    data = parsed("(float[8] x) => (float[N] y) { a = Exp(x) y = Unique(a) }").SerializeToString()
    with pytest.raises(MeasurementFailed, match=r"'cuda:0' cannot run these ops.*Unique"):
        create_session(data, parse_device("cuda:0"))


def test_shapes_may_be_computed_on_the_cpu() -> None:
    text = "(float[N, 4] x) => (float[K] y) { a = Exp(x) s = Shape(a) p = ReduceProd(s) y = Reshape(a, p) }"
    session = create_session(parsed(text).SerializeToString(), parse_device("cuda:0"))
    assert session.run(None, {"x": np.zeros((2, 4), np.float32)})[0].tolist() == [1] * 8


def test_a_profile_has_the_seconds_of_the_ops(tmp_path: Path) -> None:
    model = read("(float[64, 64] x) => (float[64, 64] y) { a = MatMul(x, x) y = Exp(a) }", tmp_path)
    op_s, _ = profile_model(model, "cuda:0", {"x": np.zeros((64, 64), np.float32)}, QUICK)
    assert 0 < op_s.sum() < 1


def test_two_slices_of_a_gpu_run_side_by_side_each_on_its_stream() -> None:
    first, second = (slice_stream("0", parse_device(name).sms or 0, parse_device(name).slice) for name in halves(0))
    assert isinstance(first, int), first
    assert isinstance(second, int), second
    assert first != second
    check_against_plain(halves(0, "use_tf32=0"))


def test_slices_hand_over_with_a_latency_and_a_bandwidth() -> None:
    topology = load_topology(",".join(halves(0)))
    with probing_process() as worker:
        costs = probe_link(*topology.device_names, worker, QUICK)
    assert costs.latency_s >= 0
    assert costs.bandwidth_bytes_per_s > 1e6


@pytest.mark.parametrize("element", ["float", "bfloat16"])
@pytest.mark.parametrize("devices", [["cuda:0"], ["cuda:0", CORE]])
def test_state_that_stays_on_the_gpu_is_read_at_the_end(element: str, devices: list[str]) -> None:
    adds = f"({element}[8] s, {element}[8] x) => ({element}[8] n) {{ n = Add(s, x) }}"
    copies = f"({element}[8] x) => ({element}[8] y) {{ y = Identity(x) }}"
    parts = [
        Part("adds", devices[0], parsed(adds).SerializeToString(), ("s", "x"), ("n",)),
        Part("copies", devices[-1], parsed(copies).SerializeToString(), ("x",), ("y",)),
    ]
    dtype = numpy_dtype(element)
    x, zeros = np.arange(8).astype(dtype), np.zeros(8, dtype)
    with PlacedRunner(parts, ["s", "x"], ["n", "y"]) as runner:
        state = runner.first_state({"s": "n"}, {"s": zeros})
        for _ in range(3):
            (y,), state = runner.run_with_state(["y"], {"x": x}, state)
            assert y.tolist() == x.tolist()
        assert as_numpy(state.value("s")).astype(np.float32).tolist() == [3.0 * number for number in range(8)]


def test_the_driver_names_the_gpus_as_nvidia_smi_does() -> None:
    listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    for gpu in gpus():
        assert f"{gpu.name} (UUID: GPU-{gpu.uuid})" in listing


def test_the_doctor_runs_a_model_on_the_gpu() -> None:
    check = installation._cuda("CUDA")
    assert (check.state, check.mend) == ("ok", ""), check.found


@pytest.mark.skipif(len(gpus()) < 2, reason="needs two GPUs")
def test_two_gpus_exchange_values_over_the_host() -> None:
    check_against_plain(["cuda:0[use_tf32=0]", "cuda:1[use_tf32=0]"])

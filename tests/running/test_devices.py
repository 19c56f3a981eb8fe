"""Session and provider options of devices, and the errors when ONNX Runtime does not use a device."""

import os
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from gnnplace.devices.presets import preset
from gnnplace.devices.real_names import parse_real
from gnnplace.devices.spec import load_topology
from gnnplace.errors import InvalidTopology, MeasurementFailed, MissingDependency
from gnnplace.onnx_io.part import Part
from gnnplace.running import devices, pipeline
from gnnplace.running.devices import (
    create_session,
    is_real,
    parse_device,
    pinned,
    provider_options,
    session_options,
    with_driving_cores,
)
from gnnplace.running.part_session import PartSession

CORES = sorted(os.sched_getaffinity(0))
MODEL = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["": 17]> g (float[N] a) => (float[N] b, float[N] c, float[N] d) { b = Exp(a) c = Neg(a) d = Abs(a) }'
).SerializeToString()
two_cores = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("k40:0", "'k40:0' does not exist on this machine"),
        ("cpu:9999", "core 9999 is not available"),
        ("cuda:0[cores=9999]", "core 9999 is not available"),
    ],
)
def test_a_name_of_a_device_that_the_machine_lacks_is_refused(name: str, message: str) -> None:
    with pytest.raises(InvalidTopology, match=message):
        parse_device(name)


def test_a_device_set_is_real_if_each_device_is() -> None:
    assert is_real(load_topology(f"cpu:{CORES[0]},ep:OpenVINO:CPU"))
    assert not is_real(preset("k40x2"))


LIMITED = {"gpu_mem_limit": str(2**30), "arena_extend_strategy": "kSameAsRequested"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"cpu:{CORES[0]}", {}),
        ("cuda:2", {"device_id": "2"}),
        ("cuda:0[memory=1GiB,do_copy=0]", {"device_id": "0", "do_copy": "0"} | LIMITED),
        ("ep:MIGraphX:1[migraphx_fp16_enable=1]", {"device_id": "1", "migraphx_fp16_enable": "1"}),
        (f"ep:OpenVINO:CPU[cores={CORES[0]}]", {"device_type": "CPU", "precision": "ACCURACY", "num_of_threads": "1"}),
        ("ep:OpenVINO:GPU.0[precision=FP16]", {"device_type": "GPU.0", "precision": "FP16"}),
    ],
)
def test_provider_options_follow_from_the_device_and_from_the_options_in_its_name(
    name: str, expected: dict[str, str]
) -> None:
    assert provider_options(parse_device(name)) == expected


def test_an_absent_provider_is_an_error_and_not_a_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices.ort, "get_available_providers", lambda: ["CPUExecutionProvider"])
    for name, provider, package in (("cuda:0", "CUDA", "gpu"), ("ep:OpenVINO:CPU", "OpenVINO", "openvino")):
        message = f"'{name}' needs ONNX Runtime's {provider}ExecutionProvider.*onnxruntime-{package}"
        with pytest.raises(MissingDependency, match=message):
            create_session(MODEL, parse_device(name))


def simulate_cuda(monkeypatch: pytest.MonkeyPatch, used: list[str], assigned: dict[str, list[str]]) -> None:
    """An ONNX Runtime with CUDA whose sessions use these providers and leave these op types to each."""

    class Session:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def get_providers(self) -> list[str]:
            return used

        def get_provider_graph_assignment_info(self) -> list[Any]:
            return [
                SimpleNamespace(ep_name=name, get_nodes=lambda types=types: [SimpleNamespace(op_type=t) for t in types])
                for name, types in assigned.items()
            ]

    monkeypatch.setattr(devices.ort, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    monkeypatch.setattr(devices.ort, "InferenceSession", Session)


def test_a_session_that_onnx_runtime_moves_to_the_cpu_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_cuda(monkeypatch, ["CPUExecutionProvider"], {"CPUExecutionProvider": ["Exp"]})
    with pytest.raises(MissingDependency, match="'cuda:0': ONNX Runtime runs on CPUExecutionProvider instead of CUDA"):
        create_session(MODEL, parse_device("cuda:0"))


def test_missing_libraries_are_named_with_the_command_that_brings_them(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_cuda(monkeypatch, ["CPUExecutionProvider"], {})
    for missing, mend in (
        (("libcublas.so.13",), r"pip install 'onnxruntime-gpu\[cuda,cudnn\]'"),
        (("libcuda.so.1",), "NVIDIA's driver"),
    ):
        monkeypatch.setattr(devices, "load_cuda_libraries", lambda missing=missing: missing)
        with pytest.raises(MissingDependency, match=rf"{missing[0]} cannot be loaded: .*{mend}"):
            create_session(MODEL, parse_device("cuda:0"))


def test_cuda_libraries_are_loaded_before_a_session_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_cuda(monkeypatch, ["CUDAExecutionProvider"], {})
    session, events = devices.ort.InferenceSession, list[str]()
    monkeypatch.setattr(devices.ort, "InferenceSession", lambda *a, **k: events.append("session") or session())
    monkeypatch.setattr(devices, "load_cuda_libraries", lambda: events.append("libraries") or ())
    create_session(MODEL, parse_device("cuda:0"))
    assert events == ["libraries", "session"]


def test_a_placed_model_drives_a_gpu_from_free_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    free = tuple(CORES[1:])
    monkeypatch.setattr(pipeline, "Pipeline", lambda workers, cache, most: workers)
    workers: Any = pipeline.python_devices({f"cpu:{CORES[0]}": [], "cuda:0": []}, 2)
    assert [worker.device.cores for worker in workers] == [(CORES[0],), free]


def test_threads_that_drive_gpus_have_cores_on_which_no_device_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "allowed_cores", lambda: (0, 1, 2, 3))

    def cores(*names: str) -> list[tuple[int, ...]]:
        return [device.cores for device in with_driving_cores([parse_real(name) for name in names])]

    assert cores("cpu:0", "cpu:1-2", "cuda:0", "cuda:1[sms=8]", "ep:TensorRT:0") == [(0,), (1, 2), (3,), (3,), (3,)]
    assert cores("cpu:0", "cuda:0[cores=0]", "cuda:1") == [(0,), (0,), (1, 2, 3)]
    assert cores("cpu:0-3", "cuda:0", "ep:OpenVINO:GPU") == [(0, 1, 2, 3), (), ()]
    assert cores("ep:OpenVINO:CPU", "cuda:0") == [(), ()]


def test_ops_that_a_gpu_leaves_to_the_cpu_are_named_unless_they_compute_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    both = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    on_cpu = ["Shape", "Gather", "Concat", "Sqrt", "Pow", "Clip", "GatherND", "ScatterND", "CumSum", "Pad"]
    simulate_cuda(monkeypatch, both, {"CUDAExecutionProvider": ["Exp"], "CPUExecutionProvider": on_cpu})
    assert create_session(MODEL, parse_device("cuda:0")).get_providers() == both
    on_cpu += ["NonMaxSuppression", "Unique", "Unique"]
    message = r"'cuda:0' cannot run these ops.*: Unique \(2\), NonMaxSuppression \(1\);"
    with pytest.raises(MeasurementFailed, match=message):
        create_session(MODEL, parse_device("cuda:0"))


def test_any_op_that_computes_with_shapes_may_be_left_to_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]> g (float[N] a) => (float[N] b, float[N] c, float[M] d)
        { s = Shape(a) t = Cast<to = 1>(s) u = Sin(t) v = Log(u) b = Sin(a) c = Mul(b, v) d = Expand(v, s) }""")
    both = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    on_cpu = ["Shape", "Cast", "Sin", "Log"]
    simulate_cuda(monkeypatch, both, {"CUDAExecutionProvider": ["Mul", "Sin"], "CPUExecutionProvider": on_cpu})
    create_session(model.SerializeToString(), parse_device("cuda:0"))
    on_cpu.append("Sin")  # the one that reads the input
    with pytest.raises(MeasurementFailed, match=r"'cuda:0' cannot run these ops.*: Sin \(1\);"):
        create_session(model.SerializeToString(), parse_device("cuda:0"))


def test_devices_of_one_gpu_share_its_memory() -> None:
    session = PartSession(Part("p", f"cpu:{CORES[0]}", MODEL, ("a",), ("b", "c")), parse_device(f"cpu:{CORES[0]}"))
    readers = ("cuda:1[sms=8]", "cuda:1[sms=8,slice=1]", "cuda:0", "cpu:0")

    def shares(device: str) -> list[bool]:
        session.device = parse_device(device)
        return [session.shares_memory_with(reader) for reader in readers]

    assert shares("cuda:1[sms=8]") == [True, True, False, False]
    assert shares(f"cpu:{CORES[0]}") == [False] * 4
    homes = session.home_of(["c"])
    assert all(home.device_type() == home.cpu() for home in homes)
    session.device = parse_device("cuda:1")
    homes = session.home_of(["c"])
    assert [(home.device_type() == home.cuda(), home.device_id()) for home in homes] == [(False, 0), (True, 1)]


@two_cores
@pytest.mark.parametrize("spinning", [False, True])
@pytest.mark.parametrize("parallel", [False, True])
def test_a_session_over_a_core_set_has_its_options_and_the_outputs_of_one_core(spinning: bool, parallel: bool) -> None:
    device = parse_device(f"cpu:{CORES[0]}-{CORES[1]}[spinning={spinning:d},parallel={parallel:d}]")
    options = session_options(device)
    threads = "session.intra_op.allow_spinning", "session.inter_op.allow_spinning"
    assert [options.get_session_config_entry(entry) for entry in threads] == [str(int(spinning))] * 2
    assert options.execution_mode == getattr(ort.ExecutionMode, "ORT_PARALLEL" if parallel else "ORT_SEQUENTIAL")
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (2, 2 if parallel else 1)
    with pinned(device):
        outputs = create_session(MODEL, device).run(None, {"a": np.arange(3, dtype=np.float32)})
    assert [value.tolist() for value in outputs[1:]] == [[0, -1, -2], [0, 1, 2]]


@two_cores
def test_a_run_is_pinned_and_restores_the_cores_of_the_caller() -> None:
    before = os.sched_getaffinity(0)
    with pinned(parse_device(f"cpu:{CORES[1]}")):
        assert os.sched_getaffinity(0) == {CORES[1]}
        with pinned(parse_device(f"cpu:{CORES[1]}")):
            assert os.sched_getaffinity(0) == {CORES[1]}
        assert os.sched_getaffinity(0) == {CORES[1]}
    assert os.sched_getaffinity(0) == before


@two_cores
def test_the_calling_thread_may_use_all_cores_of_a_provider_but_only_the_first_of_a_core_set() -> None:
    both = f"{CORES[0]}-{CORES[1]}"
    for name, cores in (
        (f"cpu:{both}", CORES[:1]),
        (f"cpu:{both}[parallel=1]", CORES[:2]),
        (f"ep:OpenVINO:CPU[cores={both}]", CORES[:2]),
    ):
        with pinned(parse_device(name)):
            assert os.sched_getaffinity(0) == set(cores)

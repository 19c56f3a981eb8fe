"""Device sets from texts of --devices, and the hardware of this machine."""

import json
from pathlib import Path

import numpy as np
import pytest

from gnnplace.devices import detect, spec
from gnnplace.devices.cuda_driver import Gpu
from gnnplace.devices.detect import cpu_model
from gnnplace.devices.json_format import topology_to_json
from gnnplace.devices.presets import preset
from gnnplace.devices.real_names import parse_real
from gnnplace.devices.spec import load_topology
from gnnplace.errors import InvalidTopology


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight cores of which two are forbidden, 12 GB, two GPUs of 132 multiprocessors."""
    monkeypatch.setattr(spec, "multiprocessors", lambda gpu: 132)
    for module in (spec, detect):
        monkeypatch.setattr(module, "allowed_cores", lambda: (0, 1, 2, 3, 6, 7))
    monkeypatch.setattr(spec, "numa_nodes", lambda: [(0, 1, 2), (3, 4, 5, 6, 7)])
    monkeypatch.setattr(spec, "total_memory_bytes", lambda: 12_000_000_000)
    gpus = Gpu(0, "NVIDIA H200", 143771 * 2**20), Gpu(1, "Tesla T4", 15360 * 2**20)
    monkeypatch.setattr(spec, "gpus", lambda: gpus)


def test_a_preset_written_to_a_file_is_read_as_the_same_device_set(tmp_path: Path) -> None:
    (tmp_path / "k40x2.json").write_text(json.dumps(topology_to_json(preset("k40x2"))))
    assert load_topology(str(tmp_path / "k40x2.json")) == load_topology(" k40x2 ")


@pytest.mark.usefixtures("machine")
def test_a_set_of_cores_is_as_fast_as_its_cores_together() -> None:
    topology = load_topology("cpu:0, cpu:1-3")
    assert topology.device_names == ("cpu:0", "cpu:1-3")
    assert not topology.shares_resources
    one, three = (device.peak_flops_per_s["float32"] for device in topology.devices)
    assert three == 3 * one
    assert topology.devices[0].kind != topology.devices[1].kind


@pytest.mark.usefixtures("machine")
def test_equal_cores_are_hosts_of_one_kind_and_all_devices_are_linked() -> None:
    topology = load_topology("cpu:0,cpu:1,cuda:1")
    assert topology.devices[0].kind == topology.devices[1].kind
    assert topology.devices[0].kind.startswith("cpu")
    assert topology.devices[2].kind == "cuda-tesla-t4"
    assert {(link.source, link.target) for link in topology.links} == {
        (a, b) for a in topology.device_names for b in topology.device_names if a != b
    }


@pytest.mark.usefixtures("machine")
def test_auto_means_each_allowed_core_and_by_default_the_gpus() -> None:
    cores = ("cpu:0", "cpu:1", "cpu:2", "cpu:3", "cpu:6", "cpu:7")
    assert load_topology("auto").device_names == (*cores[:5], "cuda:0", "cuda:1")  # a core drives the GPUs
    sets = ("cpu:0-1", "cpu:2-3", "cpu:6-7", "cpu:0-2", "cpu:3+6-7", "cpu:0-3", "cpu:0-3+6-7")
    spinning = tuple(f"{name}[spinning=1]" for name in sets)
    assert load_topology("auto", with_gpus=False).device_names == (*cores, *spinning)


def test_memory_nodes_are_read_from_the_system(tmp_path: Path) -> None:
    for node, text in (("node0", "0-3,8-11\n"), ("node1", "4\n"), ("node2", "\n")):
        (tmp_path / node).mkdir()
        (tmp_path / node / "cpulist").write_text(text)
    assert detect.numa_nodes(tmp_path) == [(0, 1, 2, 3, 8, 9, 10, 11), (4,)]
    assert detect.numa_nodes(tmp_path / "none") == []


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("cpu:4", "core 4 is not open to this process; it may use 0, 1, 2, 3, 6, 7"),
        ("cpu:2-6", "core 4"),
        ("cpu:0,cpu:0", "cpu:0 is listed twice; list every device once"),
        ("cpu:0-1,cpu:0+1", "cpu:0-1 is listed twice; cpu:0+1 is the same device"),
        ("cpu:0,cpu:0[memory=1GiB]", "cpu:0 is listed twice; cpu:0[memory=1GiB] is the same device"),
        ("cuda:0,cuda:0", "cuda:0 is listed twice"),
        ("cuda:0,cuda:0[memory=1GiB]", "cuda:0 is listed twice"),
        ("cuda:0[sms=66],cuda:0[sms=66]", "cuda:0 is listed twice; list every device once, or slices: cuda:0[sms=N"),
        ("cuda:0[sms=66],cuda:0[sms=33,slice=2]", "slices of cuda:0 differ"),
        ("cuda:0[sms=66,slice=2]", "ends at multiprocessor 198, and cuda:0 has 132; its slices of 66 are slice=0 to"),
        ("ep:OpenVINO:CPU[cores=4]", "core 4 is not open to this process"),
        (
            "ep:OpenVINO:CPU,ep:OpenVINOExecutionProvider:CPU",
            "ep:OpenVINO:CPU is listed twice; ep:OpenVINOExecutionProvider:CPU is",
        ),
        ("cuda:2", "the NVIDIA driver shows cuda:0 to cuda:1"),
        ("cpu:0,", "'' does not exist on this machine"),
        ("cpu:0;cpu:1", "does not exist on this machine"),
        ("cpux4", "no hardware"),
        ("missing.json", "missing.json: cannot be read"),
    ],
)
def test_an_invalid_device_set_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InvalidTopology) as error:
        load_topology(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.usefixtures("machine")
def test_slices_of_a_gpu_have_one_kind_a_share_of_its_memory_and_fast_links() -> None:
    topology = load_topology("cuda:0[sms=66,slice=0],cuda:0[sms=66,slice=1],cuda:1,cpu:0")
    first, second, whole, _ = topology.devices
    assert first.kind == second.kind == "cuda-nvidia-h200-sms66"
    assert first.name != second.name
    assert first.memory_bytes == second.memory_bytes == 143771 * 2**20 // 2
    assert first.peak_flops_per_s["float32"] == whole.peak_flops_per_s["float32"] / 2
    links = {(link.source, link.target): link for link in topology.links}
    inside, outside = links[first.name, second.name], links[first.name, whole.name]
    to_gpu = links["cpu:0", "cuda:1"]
    assert inside.bandwidth_bytes_per_s > outside.bandwidth_bytes_per_s == to_gpu.bandwidth_bytes_per_s


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("text", "excluded"),
    [
        ("cpu:0,cpu:1,cpu:0-1", [[2], [2], [0, 1]]),
        ("cpu:0-1,cpu:1-2,cpu:2", [[1], [0, 2], [1]]),
        ("cpu:0-1,cpu:0-1[spinning=1]", [[1], [0]]),
        ("cpu:1,ep:OpenVINO:CPU[cores=0-1],cpu:2", [[1], [0], []]),
        ("ep:OpenVINO:CPU,cpu:3", [[1], [0]]),
        ("cuda:0[sms=66,slice=0],cuda:0,cuda:0[sms=66,slice=1],cuda:1", [[1], [0, 2], [1], []]),
        ("cuda:0,ep:TensorRT:GPU,ep:tensorrt:1,cuda:1", [[1], [0], [3], [2]]),
        ("ep:TensorRT:GPU.0,cuda:0[sms=66,slice=1],ep:MIGraphX:0", [[1], [0], []]),
    ],
)
def test_devices_that_use_the_same_cores_or_multiprocessors_exclude_each_other(
    text: str, excluded: list[list[int]]
) -> None:
    topology = load_topology(text)
    assert [np.flatnonzero(row).tolist() for row in topology.excludes] == excluded


@pytest.mark.usefixtures("machine")
def test_devices_on_cores_share_one_memory_unless_their_name_states_one() -> None:
    topology = load_topology("cpu:0,cuda:0,cpu:1[memory=1GiB],cpu:0-1,ep:OpenVINO:CPU[cores=2]")
    assert topology.memory_home.tolist() == [0, 1, 2, 0, 0]
    assert topology.memory_bytes.tolist() == [12_000_000_000, 143771 * 2**20, 2**30, 12_000_000_000, 12_000_000_000]


@pytest.mark.usefixtures("machine")
def test_two_providers_on_one_gpu_share_its_memory() -> None:
    topology = load_topology("cuda:0,ep:TensorRT:GPU,cuda:1,cpu:0")
    assert topology.memory_home.tolist() == [0, 0, 2, 3]
    cuda, tensorrt, _, _ = topology.devices
    assert cuda.memory_bytes == tensorrt.memory_bytes == 143771 * 2**20
    assert (cuda.kind, tensorrt.kind) == ("cuda-nvidia-h200", "tensorrt-nvidia-h200")
    with pytest.raises(InvalidTopology, match=r"ep:TensorRT:CPU.*write ep:TensorRT:0"):
        load_topology("ep:TensorRT:CPU")
    with pytest.raises(InvalidTopology, match="there is no GPU cuda:2"):
        load_topology("ep:TensorRT:2")


@pytest.mark.usefixtures("machine")
def test_auto_has_the_devices_of_all_providers() -> None:
    offered = [f"{name}ExecutionProvider" for name in ("Tensorrt", "OpenVINO", "MIGraphX", "Azure", "CUDA", "CPU")]
    names = load_topology("auto", providers=offered).device_names
    cores = (0, 1, 2, 3, 6)
    assert names == (
        *(f"cpu:{core}" for core in cores), "cuda:0", "cuda:1", "ep:Tensorrt:0", "ep:Tensorrt:1",
        *(f"ep:OpenVINO:CPU[cores={core}]" for core in cores), "ep:MIGraphX:0",
    )  # fmt: skip
    without_gpus = load_topology("auto", with_gpus=False, providers=["OpenVINOExecutionProvider"]).device_names
    sets = [name.removeprefix("cpu:").removesuffix("[spinning=1]") for name in without_gpus if name.startswith("cpu")]
    assert without_gpus[len(sets) :] == tuple(f"ep:OpenVINO:CPU[cores={one}]" for one in sets)
    assert "0-3+6-7" in sets


@pytest.mark.usefixtures("machine")
def test_a_provider_on_the_cpu_is_a_host_of_its_own_kind() -> None:
    topology = load_topology("cpu:0,ep:OpenVINO:CPU[cores=1],ep:OpenVINO:CPU[cores=2-3,precision=FP32]")
    plain, provider, with_options = topology.devices
    assert provider.kind == f"{plain.kind}-openvino"
    assert with_options.kind == f"{plain.kind.replace('-x1', '-x2')}-openvino-precision-fp32"
    assert provider.peak_flops_per_s == plain.peak_flops_per_s
    whole = load_topology("ep:OpenVINO:CPU").devices[0].peak_flops_per_s["float32"]
    assert whole == pytest.approx(6 * plain.peak_flops_per_s["float32"])
    assert load_topology("ep:MIGraphX:0").devices[0].kind == "migraphx-0"


@pytest.mark.usefixtures("machine")
def test_memory_in_a_device_name_is_its_capacity() -> None:
    topology = load_topology("cpu:0[memory=1GiB],cuda:1[memory=2GiB],cuda:0[sms=4,memory=3GiB]")
    assert [device.memory_bytes for device in topology.devices] == [2**30, 2 * 2**30, 3 * 2**30]


@pytest.mark.usefixtures("machine")
def test_a_gpu_with_an_unknown_number_of_multiprocessors_is_not_sliced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spec, "multiprocessors", lambda gpu: None)
    with pytest.raises(InvalidTopology, match="reports no number of streaming multiprocessors"):
        load_topology("cuda:0[sms=66]")


def test_the_number_of_multiprocessors_is_that_of_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect, "gpus", lambda: (Gpu(0, "NVIDIA H200", 2**37, 132), Gpu(1, "Tesla T4", 2**34, 40)))
    assert [detect.multiprocessors(gpu) for gpu in range(3)] == [132, 40, None]


def test_the_cores_of_this_machine_are_devices() -> None:
    cores = detect.allowed_cores()
    device = detect.host_device(parse_real(f"cpu:{cores[0]}"), 1)
    assert device.name == f"cpu:{cores[0]}"
    assert device.peak_flops_per_s["float32"] > 1e9


def test_the_cpu_model_has_no_trademark_signs(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Intel(R) Xeon(R) CPU E5-2699 v3 @ 2.30GHz\n")
    assert cpu_model(info) == "intel-xeon-e5-2699-v3-2.30ghz"
    assert cpu_model(tmp_path / "absent") == "unknown"

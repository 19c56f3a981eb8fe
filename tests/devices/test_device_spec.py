"""What people type after --devices, and what the machine is asked for it."""

from pathlib import Path

import pytest

from gnnplace.devices import detect, spec
from gnnplace.devices.detect import Gpu, cpu_model, parse_gpus
from gnnplace.devices.json_format import write_topology
from gnnplace.devices.presets import preset
from gnnplace.devices.spec import load_topology, parse_cores
from gnnplace.errors import InvalidTopology

LISTING = "0, GPU-aaa, NVIDIA H200, 143771\n1, GPU-bbb, Tesla T4, 15360\n"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight cores of which two are forbidden, 12 GB, two GPUs."""
    monkeypatch.setattr(spec, "allowed_cores", lambda: (0, 1, 2, 3, 6, 7))
    monkeypatch.setattr(spec, "machine_memory_bytes", lambda: 12_000_000_000)
    monkeypatch.setattr(
        spec, "gpus", lambda: (Gpu(0, "NVIDIA H200", 143771 * 2**20), Gpu(1, "Tesla T4", 15360 * 2**20))
    )


def test_a_file_and_a_preset_give_the_same_set(tmp_path: Path) -> None:
    write_topology(preset("k40x2"), tmp_path / "k40x2.json")
    assert load_topology(str(tmp_path / "k40x2.json")) == load_topology(" k40x2 ")


@pytest.mark.usefixtures("machine")
def test_cores_share_the_memory_of_the_machine_by_their_number() -> None:
    topology = load_topology("cpu:0, cpu:1-3")
    assert topology.device_names == ("cpu:0", "cpu:1-3")
    assert [device.memory_bytes for device in topology.devices] == [3_000_000_000, 9_000_000_000]
    one, three = (device.peak_flops_per_s["float32"] for device in topology.devices)
    assert three == 3 * one
    assert topology.devices[0].kind != topology.devices[1].kind


@pytest.mark.usefixtures("machine")
def test_equal_cores_are_of_one_kind_that_counts_as_a_host_and_all_devices_are_linked() -> None:
    topology = load_topology("cpu:0,cpu:1,cuda:1")
    assert topology.devices[0].kind == topology.devices[1].kind
    assert topology.devices[0].kind.startswith("cpu")
    assert topology.devices[2].kind == "cuda-tesla-t4"
    assert {(link.source, link.target) for link in topology.links} == {
        (a, b) for a in topology.device_names for b in topology.device_names if a != b
    }


@pytest.mark.usefixtures("machine")
def test_auto_is_every_allowed_core_and_the_gpus_unless_they_are_not_wanted() -> None:
    cores = ("cpu:0", "cpu:1", "cpu:2", "cpu:3", "cpu:6", "cpu:7")
    assert load_topology("auto").device_names == (*cores, "cuda:0", "cuda:1")
    assert load_topology("auto", with_gpus=False).device_names == cores


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("cpu:4", "core 4 is not open to this process; it may use 0, 1, 2, 3, 6, 7"),
        ("cpu:2-6", "core 4"),
        ("cpu:0,cpu:0", "core 0 is listed twice"),
        ("cpu:0-2,cpu:2", "core 2 is listed twice"),
        ("cuda:0,cuda:0", "cuda:0 is listed twice"),
        ("cuda:2", "the NVIDIA driver shows cuda:0 to cuda:1"),
        ("cpu:3-1", "is no device"),
        ("cpu:0,", "'' is no device"),
        ("cpu:x", "is no device"),
        ("cpu:0;cpu:1", "is no device"),
        ("cpux4", "no hardware"),
        ("missing.json", "missing.json: cannot be read"),
    ],
)
def test_a_spec_that_stands_for_nothing_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InvalidTopology) as error:
        load_topology(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_core_names_are_parsed() -> None:
    assert parse_cores("cpu:12") == (12,)
    assert parse_cores("cpu:2-4") == (2, 3, 4)
    assert parse_cores("cpu:4-2") == ()
    assert parse_cores("cpu:") is None


def test_this_machine_has_cores_and_memory_and_they_make_a_device() -> None:
    cores = detect.allowed_cores()
    assert cores
    assert min(cores) >= 0
    assert detect.machine_memory_bytes() > 2**20
    device = detect.core_set_device(cores[:1], 1000)
    assert device.name == f"cpu:{cores[0]}"
    assert device.memory_bytes == 1000
    assert device.peak_flops_per_s["float32"] > 1e9


def test_the_cpu_is_named_without_trademark_signs(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Intel(R) Xeon(R) CPU E5-2699 v3 @ 2.30GHz\n")
    assert cpu_model(info) == "intel-xeon-e5-2699-v3-2.30ghz"
    assert cpu_model(tmp_path / "absent") == "unknown"


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        (None, ["NVIDIA H200", "Tesla T4"]),
        ("1", ["Tesla T4"]),
        ("1,0", ["Tesla T4", "NVIDIA H200"]),
        ("GPU-bbb", ["Tesla T4"]),
        ("", []),
        ("-1", []),
        ("0,9,1", ["NVIDIA H200"]),
    ],
)
def test_gpus_are_counted_as_cuda_counts_them(visible: str | None, names: list[str]) -> None:
    found = parse_gpus(LISTING, visible)
    assert [gpu.name for gpu in found] == names
    assert [gpu.index for gpu in found] == list(range(len(names)))


def test_a_gpu_whose_driver_states_no_memory_has_unlimited_memory() -> None:
    assert parse_gpus("0, GPU-a, NVIDIA GB10, [N/A]\n", None)[0].memory_bytes is None

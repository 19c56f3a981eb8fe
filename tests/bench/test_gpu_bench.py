"""The bench of GPUs, with a core in the place of the GPU."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from gnnplace.bench import gpu
from gnnplace.bench.harness import BenchOptions
from gnnplace.cost.measured import LinkCosts
from gnnplace.devices import detect
from gnnplace.devices.cuda_driver import Gpu
from gnnplace.errors import GnnplaceError
from gnnplace.measuring.timing import StoppingRule
from gnnplace.onnx_io.model import OnnxModel


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cores 0 and 1 stand in for the GPU and its halves."""
    sets = {"gpu": "cpu:0", "cores and gpu": "cpu:0,cpu:1", "halves": "cpu:0,cpu:1"}
    monkeypatch.setattr(gpu, "device_sets", lambda option="": sets)
    monkeypatch.setattr(gpu, "_BY_DEFAULT", "cpu:0")
    monkeypatch.setattr(gpu, "_RULE", StoppingRule(warmup=1, min_repeats=3, max_repeats=3))


@pytest.mark.usefixtures("core", "needs_two_cores")
def test_placements_on_every_set_have_the_outputs_of_the_plain_session(
    small_model: Callable[[str], OnnxModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model("opset_9")
    monkeypatch.setattr(gpu, "load_workload", lambda name, to_run: SimpleNamespace(models=(model,)))
    rows = gpu.gpu_result(gpu.GpuCase("some", 0))["rows"]
    sets = [(row["devices"], row["placement"]) for row in rows]
    assert sets == [
        ("gpu", gpu.WHOLE), *((name, f"{most} segments") for name in ("cores and gpu", "halves") for most in (8, 60))
    ]  # fmt: skip
    assert max(row["relative_error"] for row in rows) <= gpu.EQUAL
    assert rows[0]["segments"] == 1
    assert all(row["segments"] > 1 and row["ratio_to_plain"] > 0 for row in rows[1:])


def test_sets_name_the_gpu_its_halves_and_two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect, "multiprocessors", lambda index: 132)
    monkeypatch.setattr(gpu, "allowed_cores", lambda: (2, 3, 4))
    assert gpu.device_sets() == {
        "gpu": "cuda:0", "cores and gpu": "cpu:2,cpu:3,cuda:0", "halves": "cuda:0[sms=64,slice=0],cuda:0[sms=64,slice=1]"
    }  # fmt: skip
    assert gpu.device_sets("use_tf32=0")["cores and gpu"] == "cpu:2,cpu:3,cuda:0[use_tf32=0]"


def test_the_summary_counts_equal_placements_and_states_the_overhead(monkeypatch: pytest.MonkeyPatch) -> None:
    def row(devices: str, placement: str, error: float, ratio: float) -> Mapping[str, Any]:
        return {
            "devices": devices, "placement": placement, "relative_error": error, "ratio_to_plain": ratio,
            "plain_gpu_s": 1.0, "plain_cpu_s": 2.0,
        }  # fmt: skip

    rows = [
        row("gpu", gpu.WHOLE, 1e-6, 1.02),
        row("halves", "8 segments", 1e-2, 3.0),
        row("halves", "60 segments", 0.0, 4.0),
    ]
    monkeypatch.setattr(gpu, "cuda_is_offered", lambda: True)
    monkeypatch.setattr(gpu, "gpus", lambda: (Gpu(0, "NVIDIA H100", 1),))
    monkeypatch.setattr(gpu, "run_cases", lambda cases, *_: {case: {"rows": rows} for case in cases})
    monkeypatch.setattr(gpu, "overheads", lambda: {"part_s": {}})
    result = gpu.bench_gpu(BenchOptions(only=("light_squeezenet",)))
    assert result.summary["equal"] == {"gpu": 1, "halves": 1}
    assert result.summary["of"] == {"gpu": 1, "halves": 2}
    assert result.summary["gpu_alone_overhead_worst"] == pytest.approx(0.02)
    assert result.summary["faster_on_the_gpu_than_on_all_cores"] == 1
    assert result.details["gpu"] == "NVIDIA H100"


def test_overheads_are_those_of_parts_and_of_hand_overs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "allowed_cores", lambda: (0, 1))
    monkeypatch.setattr(detect, "multiprocessors", lambda index: 132)
    monkeypatch.setattr(gpu, "dispatch_overhead_s", lambda device, worker: 1e-5)
    monkeypatch.setattr(gpu, "probe_link", lambda one, other, worker: LinkCosts(1e-6, 1e9, 1e-7))
    found = gpu.overheads()
    assert list(found["part_s"]) == ["cpu:0", "cuda:0", "cuda:0[sms=64,slice=0]"]
    assert found["links"]["cuda:0[sms=64,slice=0] - cuda:0[sms=64,slice=1]"] == {
        "latency_s": 1e-6, "bandwidth_bytes_per_s": 1e9, "next_value_s": 1e-7
    }  # fmt: skip


def test_without_a_gpu_the_bench_says_where_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "cuda_is_offered", lambda: False)
    with pytest.raises(GnnplaceError, match="there is no GPU that ONNX Runtime can use; gnnplace doctor"):
        gpu.bench_gpu(BenchOptions())

"""Other work on the devices is detected."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gnnplace.devices.detect import gpu_use
from gnnplace.errors import InvalidTopology, MeasurementFailed
from gnnplace.measuring import busy
from gnnplace.measuring.busy import busy_shares, check_free

CORES = sorted(os.sched_getaffinity(0))
SPIN = "import os; os.sched_setaffinity(0, [{}]); print(flush=True)\nwhile True: pass"


@pytest.fixture
def spinning() -> Iterator[str]:
    """A device that another process keeps busy."""
    with subprocess.Popen([sys.executable, "-c", SPIN.format(CORES[-1])], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield f"cpu:{CORES[-1]}"
        process.kill()


def shares(monkeypatch: pytest.MonkeyPatch, found: dict[str, float]) -> None:
    monkeypatch.setattr(busy, "busy_shares", lambda devices: {name: found[name] for name in devices})


def test_a_core_that_another_process_uses_is_busy_and_so_is_a_core_set_with_it(spinning: str) -> None:
    everything = f"cpu:{CORES[0]}-{CORES[-1]}"
    found = busy_shares([spinning, everything])
    assert found.keys() == {spinning, everything}
    assert found[spinning] > 0.5
    assert found[everything] >= found[spinning]
    with pytest.raises(MeasurementFailed, match=rf"other work runs on {spinning} \(\d+%\).* or add --force"):
        check_free([spinning])
    (warning,) = check_free([spinning], force=True)
    assert warning.startswith(f"other work runs on {spinning}")


def test_some_other_work_gives_a_warning_and_less_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    shares(monkeypatch, {"cpu:0": 0.05, "cpu:1": 0.25})
    assert check_free(["cpu:0"]) == ()
    assert check_free(["cpu:0", "cpu:1"]) == ("other work runs on cpu:1 (25%): measured seconds may be too long",)


def test_a_missing_device_is_refused() -> None:
    with pytest.raises(InvalidTopology):
        busy_shares(["k40:0"])


def test_gpu_utilization_is_in_the_order_of_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\ncase $1 in *utilization.gpu*) printf '0, GPU-a, NVIDIA H200, 7\\n1, GPU-b, NVIDIA H200, 93\\n2, GPU-c, Old, [N/A]\\n';; esac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpu_use() == [7.0, 93.0, 0.0]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    assert gpu_use() == [93.0, 7.0]


def test_without_a_driver_no_gpu_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert gpu_use() == []

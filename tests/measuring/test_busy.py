"""Other work on the devices is detected."""

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from gnnplace.devices import detect
from gnnplace.devices.cuda_driver import Gpu
from gnnplace.devices.detect import gpu_use
from gnnplace.devices.real_names import parse_real
from gnnplace.errors import InvalidTopology, MeasurementFailed
from gnnplace.measuring import busy
from gnnplace.measuring.busy import busy_shares, check_free, shared_slices

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


def test_the_utilization_of_a_gpu_is_found_by_its_uuid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\ncase $1 in *uuid,utilization.gpu*) printf 'GPU-a, 7\\nGPU-b, 93\\nGPU-c, [N/A]\\n';; esac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(detect, "gpus", lambda: tuple(Gpu(i, "GPU", None, None, uuid) for i, uuid in enumerate("bcad")))
    assert gpu_use() == [93.0, 0.0, 7.0, 0.0]
    monkeypatch.setenv("PATH", "")
    assert gpu_use() == [0.0] * 4


def test_a_slice_that_is_not_isolated_gets_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(busy, "_stream_maker", partial(eval, "lambda one: one[2] or 'no driver'"))
    names = ["cpu:0", "cuda:0[sms=8]", "cuda:0[sms=8,slice=1]", "cuda:1"]
    (warning,) = shared_slices(map(parse_real, names))
    assert warning.startswith("cuda:0[sms=8] is not isolated")
    assert warning.endswith("no driver")


def test_slices_are_tried_in_a_process_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(busy, "_stream_maker", partial(eval, "lambda one: f'process {__import__(\"os\").getpid()}'"))
    (warning,) = shared_slices([parse_real("cuda:0[sms=8]")])
    pid = int(warning.rpartition(" ")[2])
    assert pid != os.getpid()
    assert not psutil.pid_exists(pid)
    monkeypatch.setattr(busy, "_stream_maker", partial(eval, "lambda one: __import__('os')._exit(3)"))
    (warning,) = shared_slices([parse_real("cuda:0[sms=8]")])
    assert "whether the slices of GPUs are isolated is unknown" in warning
    assert "exit code 3" in warning

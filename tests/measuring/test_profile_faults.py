"""Faults during a profile or a link probe: each becomes an error of one line within the limits."""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gnnplace import isolated_process
from gnnplace.errors import MeasurementFailed, MissingDependency
from gnnplace.measuring import link_probe, profile
from gnnplace.measuring.link_probe import dispatch_overhead_s, probing_process
from gnnplace.measuring.profile import profile_model, session_s
from gnnplace.onnx_io.sample_inputs import sample_inputs
from tests.measuring_processes import CORE, ENDLESS, GOOD, QUICK, is_zombie, measuring_processes, read

RAISING = """(float[3] x) => (float[3] y) <float far = {1000}>
    { a = Exp(x)  b = Add(a, far)  at = Cast<to=7>(b)  y = GatherElements(x, at) }"""
LONG = """(float[1] x) => (float[1500, 1500] y) <int64[2] n = {1500, 1500}> { a = Expand(x, n)  y = MatMul(a, a) }"""


def profiled(text: str, folder: Path, device: str = CORE) -> np.ndarray:
    model = read(text, folder)
    return profile_model(model, device, sample_inputs(model, np.random.default_rng(0)), QUICK)[0]


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """After each test no measuring process is left, not even as a zombie."""
    yield
    assert measuring_processes() == []


def test_a_model_that_raises_is_named_with_the_device_and_the_reason(tmp_path: Path) -> None:
    with pytest.raises(MeasurementFailed, match=rf"^m\.onnx cannot be profiled on '{CORE}': .*Out of range") as error:
        profiled(RAISING, tmp_path)
    assert "\n" not in str(error.value)


def test_a_session_takes_the_seconds_of_its_model_and_one_that_raises_is_named(tmp_path: Path) -> None:
    inputs = {"x": np.ones(1, np.float32)}
    product_s = session_s(read(LONG, tmp_path), CORE, inputs, QUICK)
    assert 1e-3 < product_s < 10.0  # 6.75e9 FLOPs
    assert session_s(read(GOOD, tmp_path), CORE, {"x": np.ones(3, np.float32)}, QUICK) < 0.1 * product_s
    with pytest.raises(MeasurementFailed, match=rf"^m\.onnx does not run on '{CORE}': .*Out of range"):
        session_s(read(RAISING, tmp_path), CORE, {"x": np.ones(3, np.float32)}, QUICK)


def test_a_model_that_hangs_is_stopped_at_the_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "_TIMEOUT_S", 1.0)
    with pytest.raises(MeasurementFailed) as error:
        profiled(ENDLESS, tmp_path)
    assert str(error.value) == (
        f"m.onnx cannot be profiled on '{CORE}': took longer than 1 s; the measuring process was stopped"
    )


def test_a_profile_whose_process_is_killed_is_tried_again(tmp_path: Path) -> None:
    killed, is_over = threading.Event(), threading.Event()

    def kill() -> None:
        """Kills the measuring process once ONNX Runtime has opened the profile."""
        while not is_over.wait(0.01):
            for process in measuring_processes():
                if not is_zombie(process) and any("profile_" in file.path for file in process.open_files()):
                    process.kill()
                    killed.set()
                    return

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        assert profiled(LONG, tmp_path).sum() > 0
    finally:
        is_over.set()
        killer.join()
    assert killed.is_set()


def test_a_provider_that_is_not_installed_is_refused_before_any_process_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolated_process, "_PROGRAM", "raise SystemExit('started {} {}')")
    with pytest.raises(MissingDependency, match="needs ONNX Runtime's NoSuchExecutionProvider"):
        profiled(GOOD, tmp_path, "ep:NoSuch:0")


def test_a_probe_that_hangs_names_the_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_probe, "_TIMEOUT_S", 5.0)
    with probing_process() as worker:
        dispatch_overhead_s(CORE, worker, QUICK)
        (process,) = measuring_processes()
        process.suspend()
        with pytest.raises(MeasurementFailed) as error:
            dispatch_overhead_s(CORE, worker, QUICK)
    assert str(error.value) == f"'{CORE}' cannot be probed: took longer than 5 s; the measuring process was stopped"

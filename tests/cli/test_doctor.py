"""`gnnplace doctor`: installed and missing packages, and how to install them."""

import json
from importlib import metadata
from types import SimpleNamespace

import pytest

from gnnplace import installation
from gnnplace.devices import cuda_driver, detect
from gnnplace.devices.cuda_driver import Gpu
from gnnplace.installation import Check
from gnnplace.measuring import busy, provider_profile
from gnnplace.running import cuda_libraries, devices
from tests.cli.calls import Cli
from tests.cli.test_missing_packages import folder
from tests.cli.without_packages import without

__all__ = ["folder"]


def test_a_complete_installation_is_ok(cli: Cli) -> None:
    answer = cli.json("doctor")
    assert answer["ok"] is True
    checks = {check["name"]: check for check in answer["checks"]}
    assert {"Python", "gnnplace", "ONNX Runtime", "devices", "links", "cache folder", "scotch", "browser"} < set(checks)
    assert checks["execution"]["state"] == checks["search"]["state"] == "ok"
    assert f"onnxruntime {metadata.version('onnxruntime')}" in checks["ONNX Runtime"]["found"]
    assert all(bool(check["mend"]) == (check["state"] != "ok") for check in answer["checks"])


def test_the_table_lists_missing_packages_and_how_to_install_them(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    code, out, errors = cli("doctor --quiet")
    assert code == 0
    assert "-> apt install scotch" in out
    assert "all that placing needs is there" in out
    assert errors == ""


@pytest.mark.parametrize(
    ("package", "check"), [("torch", "search"), ("onnxruntime", "ONNX Runtime"), ("numba", "search")]
)
def test_a_broken_package_is_an_answer_and_exit_code_1(folder, package: str, check: str) -> None:
    done = without(package, "doctor", "--json", folder=folder)
    assert done.returncode == 1, done.stderr
    answer = json.loads(done.stdout)
    assert answer["ok"] is False
    found = {row["name"]: row for row in answer["checks"]}[check]
    assert found["state"] == "broken"
    assert f"No module named {package!r}" in found["found"]
    assert found["mend"].startswith("pip install")


def test_an_unwritable_cache_folder_is_named_with_a_remedy(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNPLACE_CACHE", "/proc/gnnplace")
    code, out, _ = cli("doctor")
    assert code == 1
    assert "-> GNNPLACE_CACHE=FOLDER names another one" in out


def test_a_package_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "requires", lambda name: ["numpy>=99", "rich>=13"])
    found = next(check for check in installation._packages() if check.name == "gnnplace")
    assert found.state == "broken"
    assert f"numpy>=99 ({metadata.version('numpy')} is installed)" in found.found
    assert "rich" not in found.found


ONE_BUILD = "pip uninstall -y onnxruntime && pip install --force-reinstall --no-deps onnxruntime-gpu"


def with_builds(monkeypatch: pytest.MonkeyPatch, offered: list[str], *builds: str, apart: bool = False) -> Check:
    """The check of ONNX Runtime where these builds are installed, each in a folder of its own or all in one."""
    monkeypatch.setattr(installation, "installed_versions", lambda *_: dict.fromkeys(builds, "1.31.1"))

    def folder(name: str) -> SimpleNamespace:
        return SimpleNamespace(locate_file=lambda path: f"{name if apart else 'site'}/{path}")

    monkeypatch.setattr(metadata, "distribution", folder)
    monkeypatch.setattr(devices, "offered_providers", lambda: [f"{name}ExecutionProvider" for name in offered])
    return installation._runtime("ONNX Runtime")


def test_builds_of_onnx_runtime_that_overwrite_each_other_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    both = "onnxruntime", "onnxruntime-gpu"
    lies_below = with_builds(monkeypatch, ["CPU"], *both)
    assert (lies_below.state, lies_below.mend) == ("broken", ONE_BUILD)
    lies_above = with_builds(monkeypatch, ["CUDA", "CPU"], *both)
    assert (lies_above.state, lies_above.mend) == ("missing", ONE_BUILD)
    assert "onnxruntime 1.31.1, onnxruntime-gpu 1.31.1" in lies_above.found
    assert "these packages hold the same files" in lies_above.found
    assert with_builds(monkeypatch, ["CUDA", "CPU"], *both, apart=True).state == "ok"
    assert with_builds(monkeypatch, ["CUDA", "CPU"], "onnxruntime-gpu").state == "ok"
    alone = with_builds(monkeypatch, ["CPU"], "onnxruntime-gpu")
    assert (alone.state, alone.mend) == ("broken", "pip install --force-reinstall --no-deps onnxruntime-gpu")


def test_what_a_gpu_lacks_is_named_with_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    missing: tuple[str, ...] = ("libcublas.so.13",)
    refused: str | None = "no kernel image is available"
    shared: tuple[str, ...] = ("cuda:0[sms=64] is not isolated: cuda-bindings is not installed",)
    monkeypatch.setattr(cuda_driver, "gpus", lambda: (Gpu(0, "NVIDIA H100", 80 * 2**30, 132),))
    monkeypatch.setattr(detect, "multiprocessors", lambda gpu: 132)
    monkeypatch.setattr(devices, "cuda_is_offered", lambda: False)
    assert installation._devices("devices").mend == f"pip install 'gnnplace[gpu]' && {ONE_BUILD}"
    assert "cuda:0 NVIDIA H100, which ONNX Runtime cannot use" in installation._devices("devices").found
    monkeypatch.setattr(devices, "cuda_is_offered", lambda: True)
    monkeypatch.setattr(cuda_libraries, "load_cuda_libraries", lambda: missing)
    monkeypatch.setattr(provider_profile, "small_model_refusal", lambda device: refused)
    monkeypatch.setattr(busy, "shared_slices", lambda devices: shared)
    found = installation._cuda("CUDA")
    assert (found.state, found.found) == ("missing", "libcublas.so.13 cannot be loaded")
    assert found.mend == "pip install 'onnxruntime-gpu[cuda,cudnn]'"
    missing = ()
    assert (installation._cuda("CUDA").state, installation._cuda("CUDA").found) == ("broken", refused)
    refused = None
    found = installation._cuda("CUDA")
    assert (found.state, found.mend) == ("missing", "pip install -U cuda-bindings")
    assert found.found.startswith("a model ran on cuda:0; cuda:0[sms=64] is not isolated")
    shared = ()
    slices = "cuda:0[sms=64,slice=0] and cuda:0[sms=64,slice=1]"
    assert installation._cuda("CUDA").found == f"a model ran on cuda:0; it can be used as {slices}"

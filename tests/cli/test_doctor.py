"""`gnnplace doctor`: installed and missing packages, and how to install them."""

import json
from importlib import metadata
from pathlib import Path
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
    assert "these packages overwrite each other's files" in lies_above.found
    assert with_builds(monkeypatch, ["CUDA", "CPU"], *both, apart=True).state == "ok"
    assert with_builds(monkeypatch, ["CUDA", "CPU"], "onnxruntime-gpu").state == "ok"
    alone = with_builds(monkeypatch, ["CPU"], "onnxruntime-gpu")
    assert (alone.state, alone.mend) == ("broken", "pip install --force-reinstall --no-deps onnxruntime-gpu")


@pytest.mark.parametrize(("extra", "build"), [("gpu", "onnxruntime-gpu"), ("openvino", "onnxruntime-openvino")])
def test_an_extra_with_a_build_of_its_own_removes_the_other_build(
    extra: str, build: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "requires", lambda name: [f"{build}>=99; extra == '{extra}'"])
    (found,) = [check for check in installation._packages() if check.name == f"extra {extra}"]
    assert found.mend == f"pip install 'gnnplace[{extra}]' && {installation._ONE_RUNTIME.format(build)}"


def test_the_page_about_gpus_installs_as_the_doctor_says() -> None:
    page = Path(__file__).parents[2] / "docs" / "gpus.md"
    if not page.exists():
        pytest.skip("the pages stay in the repository")
    assert installation._GPU.replace(" && ", "\n", 1) in page.read_text(encoding="utf-8")


def test_the_extra_for_gpus_brings_the_libraries_of_cuda() -> None:
    assert [name for name in metadata.requires("gnnplace") or [] if name.startswith("onnxruntime-gpu[cuda,cudnn]")]


class Machine:
    """GPUs, driver, libraries and slices of a machine, as the doctor sees them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gpus = (Gpu(0, "NVIDIA H100", 80 * 2**30, 132), Gpu(1, "NVIDIA H100", 80 * 2**30, 132))
        self.driver: tuple[int, int] | None = (13, 0)
        self.offers_cuda = True
        self.missing: tuple[str, ...] = ()
        self.refused: dict[str, str] = {}
        self.shared: tuple[str, ...] = ()
        replace = monkeypatch.setattr
        replace(cuda_driver, "gpus", lambda: self.gpus)
        replace(cuda_driver, "cuda_version", lambda: self.driver)
        replace(cuda_libraries, "needed_cuda", lambda: (13, 0))
        replace(detect, "multiprocessors", lambda gpu: 132)
        replace(devices, "cuda_is_offered", lambda: self.offers_cuda)
        replace(cuda_libraries, "load_cuda_libraries", lambda: self.missing)
        replace(provider_profile, "small_model_refusal", self.refused.get)
        replace(busy, "shared_slices", lambda devices: self.shared)

    def check(self) -> tuple[str, str, str]:
        found = installation._cuda("CUDA")
        return found.state, found.found, found.mend


def test_what_a_gpu_lacks_is_named_with_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    ran = "a model ran on cuda:0, cuda:1"
    slices = ", ".join(f"cuda:{gpu}[sms=64,slice={half}]" for gpu in (0, 1) for half in (0, 1))
    assert machine.check() == ("ok", f"{ran}; slices: {slices}", "")
    machine.shared = ("cuda:0[sms=64] is not isolated: cuda-bindings is not installed",)
    state, found, mend = machine.check()
    assert (state, found) == ("missing", f"{ran}; {machine.shared[0]}")
    assert mend.startswith("pip install -U cuda-bindings;")
    machine.refused["cuda:1"] = "no kernel image is available"
    assert machine.check()[:2] == ("broken", "cuda:1: no kernel image is available")
    machine.missing = ("libcublas.so.13",)
    install = "pip install 'onnxruntime-gpu[cuda,cudnn]'"
    assert machine.check() == ("missing", "libcublas.so.13 cannot be loaded", install)


def test_a_driver_that_is_absent_or_too_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.driver = (12, 4)
    too_old = "NVIDIA's driver runs CUDA up to 12.4, and ONNX Runtime needs 13.0"
    assert machine.check() == ("broken", too_old, "update NVIDIA's driver")
    machine.gpus, machine.driver = (), None
    assert machine.check()[:2] == ("missing", "ONNX Runtime has CUDA, but there is no NVIDIA driver")
    machine.driver = (13, 1)
    assert machine.check()[0] == "ok"
    machine.offers_cuda = False
    assert machine.check()[:2] == ("ok", "no GPU, so nothing to load")


def test_a_gpu_that_onnx_runtime_cannot_use_is_named_with_the_build_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.offers_cuda = False
    found = installation._devices("devices")
    assert found.mend == f"pip install 'gnnplace[gpu]' && {ONE_BUILD}"
    assert "cuda:1 NVIDIA H100, which ONNX Runtime cannot use" in found.found

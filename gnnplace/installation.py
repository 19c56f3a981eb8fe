"""Checks of the installation (`gnnplace doctor`): each reports what it found and how to fix a problem.

Each check imports its own libraries, so that a broken library is a result.
"""

import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from gnnplace.versions import installed_versions

_PYTHONS = ((3, 11), (3, 12), (3, 13))
_RUNTIMES = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino")
"""Builds of one library that share their files; one of them suffices."""
_EXTRAS = {
    "gpu": "GPUs and slices of them", "openvino": "devices of OpenVINO", "optimal": "the planner optimal",
    "partition": "the planners metis, metis-cpu and mtkahypar", "train": "TensorBoard's event files",
    "zoo": "building zoo models, and exporting from PyTorch", "ray": "work on many machines, --ray",
    "pictures": "pictures of reports as files",
}  # fmt: skip
_PROGRAMS = {
    "scotch": (("scotch_gmap",), "for the planner scotch", "apt install scotch"),
    "browser": (
        ("chromium", "chromium-browser", "google-chrome", "chrome", "firefox"),
        "for looking at reports, and for pictures of them",
        "apt install chromium, or open report.html elsewhere: it needs nothing else",
    ),
}
"""Programs of which one suffices, their use, and how to install one."""
_ONE_RUNTIME = "pip uninstall -y onnxruntime && pip install --force-reinstall --no-deps {}"
"""Removes the build that gnnplace requires, and with it files of the other one, which is then installed anew."""
_BUILD_OF_EXTRA = {"gpu": "onnxruntime-gpu", "openvino": "onnxruntime-openvino"}
_GPU = f"pip install 'gnnplace[gpu]' && {_ONE_RUNTIME.format(_BUILD_OF_EXTRA['gpu'])}"
_DRIVER = "install NVIDIA's driver, if this machine has a GPU"
_SLICES = "pip install -U cuda-bindings; slices also need a driver for CUDA 12.5 or newer"
_REINSTALL = "pip install --force-reinstall gnnplace"


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    state: Literal["ok", "missing", "broken"]
    """`broken` if placing needs it; `missing` if only some commands need it, or results would be better with it."""
    found: str
    mend: str = ""
    """Command or advice that fixes a problem; empty if there is none."""


def checks() -> Iterator[Check]:
    """All checks, the quick ones first; the last ones place and run a small model, and compile the simulator and the threads of placed models on first use."""
    yield _python()
    yield from _packages()
    for name, look in _LOOKS.items():
        try:
            yield look(name)
        except (Exception, SystemExit) as error:  # a broken library may raise anything
            yield Check(name, "broken", " ".join(f"{type(error).__name__}: {error}".split())[:300], _REINSTALL)


def _python() -> Check:
    found = f"{platform.python_version()} at {sys.executable}"
    if sys.version_info[:2] in _PYTHONS:
        return Check("Python", "ok", found)
    return Check("Python", "broken", found, "take Python 3.11, 3.12 or 3.13: python3.12 -m venv .venv")


def _packages() -> Iterator[Check]:
    """The requirements of the package, then those of each extra."""
    try:
        needed = metadata.requires("gnnplace") or []
        version = metadata.version("gnnplace")
    except metadata.PackageNotFoundError:
        yield Check("gnnplace", "broken", "runs from a folder, and is not installed", "pip install -e . in its folder")
        return
    if unmet := ", ".join(_unmet(needed, "")):
        yield Check("gnnplace", "broken", f"{version}, which lacks {unmet}", _REINSTALL)
    else:
        yield Check("gnnplace", "ok", f"{version} in {Path(__file__).parent}, with all that it requires")
    provided = metadata.metadata("gnnplace").get_all("Provides-Extra") or []
    for extra, what in _EXTRAS.items():
        lacking = ", ".join(_unmet(needed, extra))
        if extra in provided and lacking:
            mend = f"pip install 'gnnplace[{extra}]'"
            build = _BUILD_OF_EXTRA.get(extra)
            mend += "" if build is None else f" && {_ONE_RUNTIME.format(build)}"
            yield Check(f"extra {extra}", "missing", f"{what}: lacks {lacking}", mend)
        elif extra in provided:
            yield Check(f"extra {extra}", "ok", what)


def _unmet(needed: list[str], extra: str) -> list[str]:
    """Requirements that are not installed in a suitable version: those of one extra, or with `""` those of no extra."""
    from packaging.requirements import Requirement

    unmet = []
    for requirement in map(Requirement, needed):
        marker = requirement.marker
        is_core = marker is None or marker.evaluate({"extra": ""})
        if is_core == bool(extra) or not (is_core or (marker and marker.evaluate({"extra": extra}))):
            continue
        builds = _RUNTIMES if requirement.name == "onnxruntime" else (requirement.name,)
        versions = list(installed_versions(*builds).values())
        if not any(requirement.specifier.contains(version, prereleases=True) for version in versions):
            unmet.append(f"{requirement} ({versions[0]} is installed)" if versions else str(requirement.name))
    return unmet


def _runtime(name: str) -> Check:
    from gnnplace.running.devices import offered_providers

    builds = installed_versions(*_RUNTIMES)
    folders = {metadata.distribution(build).locate_file("onnxruntime") for build in builds}
    offered = [provider.removesuffix("ExecutionProvider") for provider in offered_providers()]
    found = f"{', '.join(map(' '.join, builds.items()))}; offers {', '.join(offered)}"
    for build, provider in (("onnxruntime-gpu", "CUDA"), ("onnxruntime-openvino", "OpenVINO")):
        if build in builds and len(builds) > len(folders):
            lies = f"{found}; these packages overwrite each other's files, and those of the last one that was installed are active"
            return Check(name, "missing" if provider in offered else "broken", lies, _ONE_RUNTIME.format(build))
        if build in builds and provider not in offered:
            again = f"pip install --force-reinstall --no-deps {build}"
            return Check(name, "broken", f"{found}; another build lies over {build}", again)
    return Check(name, "ok", found)


def _dgl(name: str) -> Check:
    from gnnplace.policy.dgl_graph import HAS_DGL

    absent = "not installed; the policy passes its messages in plain torch, with the same weights"
    return Check(name, "ok", f"dgl {installed_versions('dgl')['dgl']}" if HAS_DGL else absent)


def _devices(name: str) -> Check:
    from gnnplace.devices.cuda_driver import gpus
    from gnnplace.devices.detect import allowed_cores, cpu_model
    from gnnplace.host_memory import total_memory_bytes
    from gnnplace.running.devices import cuda_is_offered
    from gnnplace.units import format_bytes

    cores, there = allowed_cores(), gpus()
    found = f"{len(cores)} cores of {cpu_model()}, {format_bytes(total_memory_bytes())}"
    found += "".join(f"; cuda:{gpu.index} {gpu.name}" for gpu in there) or "; no GPU that the NVIDIA driver shows"
    if there and not cuda_is_offered():
        return Check(name, "missing", f"{found}, which ONNX Runtime cannot use", _GPU)
    return Check(name, "ok", found)


def _cuda(name: str) -> Check:
    """Loads CUDA's libraries, runs a small model on each GPU, and makes a slice, in processes that end."""
    from gnnplace.devices.cuda_driver import cuda_version, gpus
    from gnnplace.devices.detect import halves
    from gnnplace.measuring.busy import shared_slices
    from gnnplace.measuring.provider_profile import small_model_refusal
    from gnnplace.running.cuda_libraries import load_cuda_libraries, needed_cuda, remedy
    from gnnplace.running.devices import cuda_is_offered, parse_device

    there, driver, needed = [f"cuda:{gpu.index}" for gpu in gpus()], cuda_version(), needed_cuda()
    if not cuda_is_offered():
        return Check(name, "ok", "nothing that ONNX Runtime could use" if there else "no GPU, so nothing to load")
    if driver is None:
        return Check(name, "missing", "ONNX Runtime has CUDA, but there is no NVIDIA driver", _DRIVER)
    if needed is not None and driver < needed[:1]:
        versions = f"NVIDIA's driver runs CUDA up to {_dotted(driver)}, and ONNX Runtime needs {_dotted(needed)}"
        return Check(name, "broken" if there else "missing", versions, "update NVIDIA's driver")
    if not there:
        return Check(name, "ok", "no GPU that the driver shows, so nothing to load")
    if missing := load_cuda_libraries():
        return Check(name, "missing", f"{', '.join(missing)} cannot be loaded", remedy(missing))
    for device in there:
        if refused := small_model_refusal(device):
            return Check(name, "broken", f"{device}: {refused}", _GPU)
    ran = f"a model ran on {', '.join(there)}"
    slices = [name for gpu in gpus() for name in halves(gpu.index)]
    if shared := shared_slices(map(parse_device, slices)):
        return Check(name, "missing", f"{ran}; {shared[0]}", _SLICES)
    return Check(name, "ok", f"{ran}; {'slices: ' + ', '.join(slices) if slices else 'no slices'}")


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _links(name: str) -> Check:
    from gnnplace.api.problem_setup import stored_costs, topology_of
    from gnnplace.measuring.link_probe import device_pairs

    topology = topology_of("auto")
    pairs, costs = device_pairs(topology), stored_costs()
    kinds = {device.name: device.kind for device in topology.devices}
    probed = sum(pair in costs.device_links or tuple(kinds[device] for device in pair) in costs.links for pair in pairs)
    found = f"{probed} of {len(pairs)} between this machine's devices are measured"
    if probed == len(pairs):
        return Check(name, "ok", found)
    mend = "gnnplace place --measure measures what it needs, gnnplace profile all of a set"
    return Check(name, "missing", f"{found}; the others are estimates until then", mend)


def _cache(name: str) -> Check:
    from gnnplace.files import cache_folder, new_file
    from gnnplace.units import format_bytes

    folder = cache_folder()
    trial = folder / "doctor"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with new_file(trial) as path:
            path.write_text("this folder can be written\n")
        trial.unlink()
    except OSError as error:
        return Check(name, "broken", f"{folder}: {error.strerror}", "GNNPLACE_CACHE=FOLDER names another one")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Check(name, "ok", f"{folder}, {format_bytes(size)}, {format_bytes(shutil.disk_usage(folder).free)} free")


def _program(name: str) -> Check:
    programs, use, mend = _PROGRAMS[name]
    found = next(filter(None, map(shutil.which, programs)), None)
    return Check(name, "ok", found) if found else Check(name, "missing", use, mend)


def _execution(name: str) -> Check:
    """Places, saves and runs a model of two ops on cores of this machine."""
    import numpy as np

    from gnnplace.api import PlaceOptions, place
    from gnnplace.devices.detect import allowed_cores
    from gnnplace.files import temporary_folder
    from gnnplace.onnx_io.sample_inputs import wide_probe_model
    from gnnplace.running.session import Session

    cores = ",".join(f"cpu:{core}" for core in allowed_cores()[:2])
    with temporary_folder() as folder:
        model = folder / "model.onnx"
        model.write_bytes(wide_probe_model(4, ["x"], ["y", "z"]))
        place(model, cores, PlaceOptions(planner="round-robin")).save(folder / "placed")
        with Session(folder / "placed") as session:
            x = np.arange(4, dtype=np.float32)
            answers = session.run(None, {"x": x})
    if not all(np.array_equal(answer, -x) for answer in answers):
        return Check(name, "broken", f"a placed model on {cores} gave {answers} for -{x}", _REINSTALL)
    return Check(name, "ok", f"a placed model ran on {cores}")


def _search(name: str) -> Check:
    """Places two branches of equal work, which the shipped policy's search must put on two devices."""
    from gnnplace.api import PlaceOptions, place
    from gnnplace.devices.presets import preset
    from gnnplace.files import temporary_folder
    from gnnplace.graph.json_format import write_graph
    from gnnplace.graph.op_graph import Op, OpGraph, Tensor

    ops = [Op(op, time_s={"k40": 1.0, "cpu-haswell": 50.0}) for op in ("read", "left", "right", "join")]
    tensors = [Tensor("read", 8, ("left", "right")), Tensor("left", 8, ("join",)), Tensor("right", 8, ("join",))]
    with temporary_folder() as folder:
        write_graph(OpGraph.build("two branches", ops, tensors), folder / "graph.json")
        plan = place(folder / "graph.json", preset("k40x2"), PlaceOptions(evaluations=64))
    if not plan.makespan_s < 3.5:
        return Check(name, "broken", f"two branches take {plan.makespan_s} s on two devices, not 3", _REINSTALL)
    return Check(name, "ok", "the shipped policy places two branches on two devices")


_LOOKS: dict[str, Callable[[str], Check]] = {
    "ONNX Runtime": _runtime, "DGL": _dgl, "devices": _devices, "CUDA": _cuda, "links": _links, "cache folder": _cache, "scotch": _program,
    "browser": _program, "execution": _execution, "search": _search,
}  # fmt: skip

"""Cores, memory and GPUs of this machine, as the system reports them.

Rates are conservative published figures, sufficient to rank ops before a calibration replaces them.
"""

import csv
import os
import platform
import re
import subprocess
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Lock, current_thread, main_thread
from typing import Any

from gnnplace.devices.cuda_driver import Gpu, gpus
from gnnplace.devices.real_names import RealDevice, parse_real
from gnnplace.devices.topology import HOST_KIND_PREFIX, Device
from gnnplace.host_memory import physical_memory_bytes

CORE_DISPATCH_OVERHEAD_S = 10e-6  # wakes a thread and calls a session; 2 to 30 us were measured
GPU_DISPATCH_OVERHEAD_S = 20e-6  # estimate: the same plus kernel launch and stream synchronisation
# Cores share memory: another thread learns of a tensor and reads it from the shared cache. 3 to 11 us were measured.
CORE_LATENCY_S, CORE_COPY_BYTES_PER_S = 5e-6, 10e9
CORE_BANDWIDTH_BYTES_PER_S = 8e9  # sustained by one core of a server CPU while its neighbours work
DEFAULT_CLOCK_HZ = 2.0e9
_CLUSTER = 8  # multiprocessors that the driver keeps together
# Float32 operations per cycle and core, with one FMA unit of the widest instructions: AVX-512, AVX2, NEON, SSE.
_FLOPS_PER_CYCLE = (("avx512f", 32.0), ("fma", 16.0), ("asimd", 8.0), ("sse2", 8.0))


_main_cores: list[set[int]] = []
"""Cores of the main thread before each block of `pinned_to` that it is in."""
_pinning = Lock()


def allowed_cores() -> tuple[int, ...]:
    """The cores that this process may run on, in ascending order: those of the main thread where `pinned_to` does not pin it."""
    if not hasattr(os, "sched_getaffinity"):
        return tuple(range(os.cpu_count() or 1))
    with _pinning:
        return tuple(sorted(_main_cores[0] if _main_cores else os.sched_getaffinity(os.getpid())))


def numa_nodes(folder: Path = Path("/sys/devices/system/node")) -> list[tuple[int, ...]]:
    """The cores of each memory node of this machine; none where the system does not tell."""
    texts: list[str] = []
    with suppress(OSError):
        texts = [path.read_text().strip() for path in sorted(folder.glob("node[0-9]*/cpulist"))]
    return [parse_real(f"cpu:{text.replace(',', '+')}").cores for text in texts if text]


def occupied(real: RealDevice, reals: Iterable[RealDevice]) -> tuple[str, ...]:
    """What a device of the set `reals` occupies while it computes: its cores (all, if it names none), or slices of its GPU.

    A GPU occupies all slices of it that are in the set, whichever provider computes on it.
    """
    on = f"{real.host}/" if real.host else ""
    if real.on_host:
        return tuple(f"{on}core:{core}" for core in real.cores or allowed_cores())
    if real.nvidia_gpu is None:
        return (f"{on}{real.provider}:{real.device_id}",)
    gpu = f"{on}cuda:{real.nvidia_gpu}"
    if real.sms is not None:
        return (f"{gpu}/{real.slice}",)
    same = [other for other in reals if (other.host, other.gpu) == (real.host, real.nvidia_gpu)]
    return tuple(f"{gpu}/{index}" for index in sorted({one.slice for one in same if one.sms is not None})) or (gpu,)


@contextmanager
def pinned_to(cores: Collection[int]) -> Iterator[None]:
    """Keeps the calling thread on the cores within the block, and restores its affinity afterwards."""
    is_main, before = current_thread() is main_thread(), os.sched_getaffinity(0)
    with _pinning:
        os.sched_setaffinity(0, cores)
        if is_main:
            _main_cores.append(before)
    try:
        yield
    finally:
        with _pinning:
            os.sched_setaffinity(0, before)
            if is_main:
                _main_cores.pop()


@cache
def machine_facts() -> dict[str, Any]:
    """The hardware that measured seconds depend on: CPU, cores, memory, GPUs."""
    return {
        "cpu": cpu_model(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(physical_memory_bytes() / 2**30),
        "gpus": [gpu.name for gpu in gpus()],
    }


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The CPU's name as one word, for example `intel-xeon-2.50ghz`; `unknown` if the system has none."""
    return _as_word(_cpu_field("model name", cpuinfo)) or "unknown"


def vector_instructions() -> str:
    """The widest vector instructions of the CPU, as the system calls them; `unknown` if it does not tell."""
    flags = _cpu_flags()
    return next((flag for flag, _ in _FLOPS_PER_CYCLE if flag in flags), "unknown")


def host_device(real: RealDevice, num_cores: int) -> Device:
    """A device that computes on `num_cores` cores of this machine; its memory is not stated.

    Its kind has the CPU model, the core count, and the options of a provider other than ONNX Runtime's own, so that devices
    of one kind cost the same.
    """
    runtime = "" if real.family == "cpu" else f"-{_provider_word(real)}"
    return Device(
        name=real.name,
        kind=f"{HOST_KIND_PREFIX}-{cpu_model()}-x{num_cores}{runtime}{_options_word(real)}",
        peak_flops_per_s={"float32": _core_flops_per_s() * num_cores, "float64": _core_flops_per_s() * num_cores / 2},
        memory_bandwidth_bytes_per_s=CORE_BANDWIDTH_BYTES_PER_S * num_cores,
        dispatch_overhead_s=CORE_DISPATCH_OVERHEAD_S,
    )


def accelerator(real: RealDevice, gpu: Gpu | None, share: float = 1.0) -> Device:
    """A GPU, a `share` of its streaming multiprocessors, or a device that is no NVIDIA GPU (`gpu` is None).

    Before a calibration, the rates are those of a T4, a small GPU that current CUDA supports. A slice has the same share of
    memory and bandwidth; its kind has the number of its multiprocessors.
    """
    model = f"{_provider_word(real)}-{_as_word(real.device_id if gpu is None else gpu.name)}"
    sliced = "" if real.sms is None else f"-sms{real.sms}"
    memory = None if gpu is None or gpu.memory_bytes is None else int(gpu.memory_bytes * share)
    return Device(
        name=real.name,
        kind=f"{model}{sliced}{_options_word(real)}",
        memory_bytes=memory,
        peak_flops_per_s={"float32": 8e12 * share, "float16": 65e12 * share},  # NVIDIA T4 data sheet
        memory_bandwidth_bytes_per_s=300e9 * share,  # NVIDIA T4 data sheet
        dispatch_overhead_s=GPU_DISPATCH_OVERHEAD_S,
    )


def multiprocessors(gpu: int) -> int | None:
    """Number of streaming multiprocessors of a GPU, from the CUDA driver; None without a driver or such a GPU."""
    return next((one.multiprocessors for one in gpus() if one.index == gpu), None)


def halves(gpu: int, option: str = "") -> list[str]:
    """Names of two slices of a GPU, each of half of its multiprocessors in whole clusters; none for a GPU without so many.

    `option` is one more option of the slices, for example `use_tf32=0`.
    """
    half = (multiprocessors(gpu) or 0) // (2 * _CLUSTER) * _CLUSTER
    more = f",{option}" if option else ""
    return [f"cuda:{gpu}[sms={half},slice={index}{more}]" for index in range(2)] if half else []


def gpu_use() -> list[float]:
    """Recent utilization of each GPU in percent, in the order of `gpus`; 0 if the driver has no figure."""
    command = ["nvidia-smi", "--query-gpu=uuid,utilization.gpu", "--format=csv,noheader,nounits"]
    try:
        listing = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        listing = ""
    rows = (row for row in csv.reader(listing.splitlines(), skipinitialspace=True) if len(row) == 2)
    percent = {uuid.removeprefix("GPU-"): float(figure) for uuid, figure in rows if figure.isdecimal()}
    return [percent.get(gpu.uuid, 0.0) for gpu in gpus()]


def _core_flops_per_s() -> float:
    flags = _cpu_flags()
    per_cycle = next((rate for flag, rate in _FLOPS_PER_CYCLE if flag in flags), 8.0)
    clock = re.match(r"[0-9.]+", _cpu_field("cpu MHz"))
    return per_cycle * (float(clock[0]) * 1e6 if clock else DEFAULT_CLOCK_HZ)


def _cpu_flags() -> set[str]:
    return set((_cpu_field("flags") or _cpu_field("Features")).split())


def _cpu_field(field: str, cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    match = re.search(rf"^{re.escape(field)}\s*:\s*(.*)$", text, re.MULTILINE)
    return match[1].strip() if match else ""


def _provider_word(real: RealDevice) -> str:
    return _as_word(real.short_provider)


def _options_word(real: RealDevice) -> str:
    """The provider's options, which are part of the kind because they change the costs of ops."""
    return "".join(f"-{_as_word(f'{key} {value}')}" for key, value in sorted(real.options.items()))


def _as_word(name: str) -> str:
    """The name in lower case, without trademark signs and generic words."""
    plain = re.sub(r"\((r|tm)\)|\b(cpu|processor)\b", " ", name.lower())
    return re.sub(r"[^a-z0-9.]+", "-", plain).strip("-")

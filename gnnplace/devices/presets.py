"""Known hardware with published figures, and device sets of it: `k40x4`, `k40x2+v100`, `k40x2@300MiB`, `epyc-corex16`."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count, permutations

from gnnplace.devices.detect import (
    CORE_BANDWIDTH_BYTES_PER_S,
    CORE_COPY_BYTES_PER_S,
    CORE_LATENCY_S,
    occupied,
)
from gnnplace.devices.real_names import core_sets, parse_real
from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.errors import InvalidTopology, did_you_mean
from gnnplace.units import GIB, parse_bytes

MAX_DEVICES = 64
MAX_SOCKETS = 2

DISPATCH_OVERHEAD_S = 10e-6  # estimate: wakes the host thread or a thread pool, launches the first kernel
PCIE_LATENCY_S = 10e-6  # estimate: a small copy between host and GPU, with its launch
NVLINK_LATENCY_S = 5e-6  # estimate: a small copy between GPUs, with its launch
SOCKET_LATENCY_S = 1e-6  # estimate: a thread of the other socket takes a tensor
# PCI-SIG: 8, 16 and 32 GT/s on 16 lanes with 128b/130b encoding, minus 20 % for packet headers.
PCIE3_BYTES_PER_S, PCIE4_BYTES_PER_S, PCIE5_BYTES_PER_S = 12.6e9, 25.2e9, 50.4e9


@dataclass(frozen=True)
class Figures:
    """Published figures of a CPU socket, whose cores are one device, or of a GPU.

    Peak rates are dense; a dtype without a rate runs at that of float32.
    """

    source: str
    peak_flops_per_s: Mapping[str, float]
    memory_bytes: int
    """Capacity of a GPU, or a typical memory per socket of a server of that time, of which no source has a figure."""
    memory_bandwidth_bytes_per_s: float
    link_bytes_per_s: float
    """Rate per direction: between a GPU and its host over PCIe, or from a socket to the other one."""


@dataclass(frozen=True)
class CpuFigures(Figures):
    """Published figures of a CPU socket."""

    cores: int = 1


@dataclass(frozen=True)
class GpuFigures(Figures):
    """Published figures of a GPU."""

    host: str = "epyc"
    """Preset name of a CPU of the same time."""
    gpus_per_board: int = 1
    """Number of GPUs that share one PCIe slot."""
    nvlink_bytes_per_s: float | None = None
    """Rate per GPU and direction, through switches between all GPUs; None: tensors go through the host."""


def _gpu_rates(float32: float, float64: float, **others: float) -> Mapping[str, float]:
    """Rates by dtype from TFLOP/s."""
    return {dtype: rate * 1e12 for dtype, rate in {"float32": float32, "float64": float64, **others}.items()}


_HOPPER_SXM_RATES = _gpu_rates(67, 34, float16=989.5, int8=1979, bfloat16=989.5)

GPUS: Mapping[str, GpuFigures] = {
    "k40": GpuFigures(
        # 10 GB/s over PCIe 3.0: bandwidthTest of a K40m with pinned memory, published by Microway (2013).
        "NVIDIA Tesla K40 data sheet (2013), base clock",
        _gpu_rates(4.29, 1.43), 12 * GIB, 288e9, 10e9, host="haswell",
    ),
    "k80": GpuFigures(
        "NVIDIA Tesla K80 data sheet (2014), boost clock; one of its two GK210 dies, so half of the board's figures",
        _gpu_rates(4.37, 1.455), 12 * GIB, 240e9, 10e9, host="haswell", gpus_per_board=2,
    ),
    "p100": GpuFigures(
        "NVIDIA Tesla P100 data sheet (2016), PCIe 16 GB",
        _gpu_rates(9.3, 4.7, float16=18.7), 16 * GIB, 732e9, PCIE3_BYTES_PER_S,
    ),
    "v100": GpuFigures(
        "NVIDIA V100 data sheet (2018), PCIe 16 GB",
        _gpu_rates(14, 7, float16=112), 16 * GIB, 900e9, PCIE3_BYTES_PER_S,
    ),
    "v100-32gb": GpuFigures(
        "NVIDIA V100 data sheet (2018), PCIe 32 GB",
        _gpu_rates(14, 7, float16=112), 32 * GIB, 900e9, PCIE3_BYTES_PER_S,
    ),
    "a100": GpuFigures(
        "NVIDIA A100 data sheet (2021), PCIe 40 GB",
        _gpu_rates(19.5, 9.7, float16=312, int8=624, bfloat16=312), 40 * GIB, 1555e9, PCIE4_BYTES_PER_S,
    ),
    "a100-80gb": GpuFigures(
        "NVIDIA A100 data sheet (2021), PCIe 80 GB",
        _gpu_rates(19.5, 9.7, float16=312, int8=624, bfloat16=312), 80 * GIB, 1935e9, PCIE4_BYTES_PER_S,
    ),
    "a100-sxm": GpuFigures(
        "NVIDIA A100 data sheet (2021), SXM 80 GB; 600 GB/s NVLink in both directions together",
        _gpu_rates(19.5, 9.7, float16=312, int8=624, bfloat16=312), 80 * GIB, 2039e9, PCIE4_BYTES_PER_S,
        nvlink_bytes_per_s=300e9,
    ),
    "h100": GpuFigures(
        "NVIDIA H100 data sheet (2022), PCIe 80 GB; half of the rates that it states with sparsity",
        _gpu_rates(51, 26, float16=756.5, int8=1513, bfloat16=756.5), 80 * GIB, 2000e9, PCIE5_BYTES_PER_S,
    ),
    "h100-sxm": GpuFigures(
        "NVIDIA H100 data sheet (2022), SXM 80 GB, as above; 900 GB/s NVLink in both directions together",
        _HOPPER_SXM_RATES, 80 * GIB, 3350e9, PCIE5_BYTES_PER_S, nvlink_bytes_per_s=450e9,
    ),
    "h200": GpuFigures(
        "NVIDIA H200 data sheet (2024), NVL (PCIe) 141 GB, no bridges; half of the rates that it states with sparsity",
        _gpu_rates(60, 30, float16=835.5, int8=1670.5, bfloat16=835.5), 141 * 10**9, 4800e9, PCIE5_BYTES_PER_S,
    ),
    "h200-sxm": GpuFigures(
        "NVIDIA H200 data sheet (2024), SXM 141 GB, as above; 900 GB/s NVLink in both directions together",
        _HOPPER_SXM_RATES, 141 * 10**9, 4800e9, PCIE5_BYTES_PER_S, nvlink_bytes_per_s=450e9,
    ),
}  # fmt: skip

CPUS: Mapping[str, CpuFigures] = {
    "haswell": CpuFigures(
        # The "Haswell 2300" of Mirhoseini et al. 2017: 18 cores at 2.3 GHz, two 8-wide FMA units each; two QPI links.
        "Intel ARK, Xeon E5-2699 v3 (2014): 18 cores, 2.3 GHz, four channels DDR4-2133, QPI at 9.6 GT/s",
        {"float32": 18 * 2.3e9 * 32, "float64": 18 * 2.3e9 * 16}, 128 * GIB, 68e9, 2 * 19.2e9, cores=18,
    ),
    "epyc": CpuFigures(
        # Zen 4 does two 8-wide FMA per cycle and core; three of four 16-lane links at 32 GT/s join the sockets.
        "AMD product page, EPYC 9654 (2022): 96 cores, 2.4 GHz, 460.8 GB/s from twelve channels DDR5-4800",
        {"float32": 96 * 2.4e9 * 32, "float64": 96 * 2.4e9 * 16}, 384 * GIB, 460.8e9, 3 * 64e9, cores=96,
    ),
}  # fmt: skip

_CORES: Mapping[str, CpuFigures] = {f"{name}-core": figures for name, figures in CPUS.items()}
_NO_PRESETS = ("auto", "cpu:0", "cuda:0")
"""Other forms of `--devices`, which error messages suggest for similar names."""


def preset_names() -> tuple[str, ...]:
    """Names of the known hardware; `xN` after a name means N devices of it, `+` joins parts.

    >>> preset_names()[:4]
    ('k40', 'k80', 'p100', 'v100')
    """
    return (*GPUS, *CPUS, *_CORES)


def preset(name: str) -> Topology:
    """The device set of a name such as `k40x4`.

    GPUs have the names `k40:0`, `k40:1`, ...; their host is `cpu:0`, a CPU of the same time unless the name has one. Every
    GPU has a link to the host and one back, each with its own channel (the two dies of a K80 board share theirs).
    `@300MiB` after a part sets the memory of each of its devices.

    `epyc-corex4` are cores of one socket, and sets of them that share its memory; an op runs on one core or on a set.

    >>> preset("k40x2+v100").device_names
    ('k40:0', 'k40:1', 'v100:0', 'cpu:0')
    >>> preset("epyc-corex4").device_names
    ('cpu:0', 'cpu:1', 'cpu:2', 'cpu:3', 'cpu:0-1', 'cpu:2-3', 'cpu:0-3')

    Raises:
        InvalidTopology: the hardware is unknown, or its number is not 1 to 64.
    """
    parts = [_parse(part, name) for part in name.split("+")]
    if any(kind in _CORES for kind, _, _ in parts):
        if len(parts) > 1:
            raise InvalidTopology(f"preset {name!r} joins cores with other hardware; write a topology file for that")
        return _cores_of_a_socket(name, *parts[0])
    gpu_parts = [(kind, number, figures) for kind, number, figures in parts if isinstance(figures, GpuFigures)]
    cpu_parts = [part for part in parts if part[0] in CPUS]
    if len(cpu_parts) > 1:
        raise InvalidTopology(f"preset {name!r} lists two kinds of CPU; one board holds one kind")
    if sum(number for _, number, _ in gpu_parts) > MAX_DEVICES:
        raise InvalidTopology(f"preset {name!r} has more than {MAX_DEVICES} GPUs; ask for 1 to {MAX_DEVICES}")
    if not cpu_parts:
        hosts = {figures.host for _, _, figures in gpu_parts}
        host = "epyc" if "epyc" in hosts else hosts.pop()
        cpu_parts = [(host, 1, CPUS[host])]
    numbers: dict[str, Iterator[int]] = defaultdict(count)
    gpus = [
        (_device(f"{kind}:{next(numbers[kind])}", kind, figures), figures)
        for kind, number, figures in gpu_parts
        for _ in range(number)
    ]
    ((cpu, sockets, cpu_figures),) = cpu_parts
    cpus = [_device(f"cpu:{socket}", f"cpu-{cpu}", cpu_figures) for socket in range(sockets)]
    links = tuple(_links(gpus, cpus, cpu_figures))
    return Topology(name, (*(device for device, _ in gpus), *cpus), links)


def _parse(text: str, whole: str) -> tuple[str, int, Figures]:
    """Name, number and figures of a part `NAMExN@MEMORY` of a preset's name."""
    body, at, memory = text.partition("@")
    try:
        memory_bytes = parse_bytes(memory) if at else None
    except ValueError as error:
        raise InvalidTopology(f"preset {whole!r}: {error}") from None
    match = re.fullmatch(r"(.+?)(?:x(\d+))?", body)
    name, number = (match[1], int(match[2] or 1)) if match else (body, 1)
    if name not in preset_names():
        known = f"known are {', '.join(preset_names())}, as in k40x4; cpu:K, cuda:K; auto"
        hint = did_you_mean(name, (*preset_names(), *_NO_PRESETS), known)
        raise InvalidTopology(f"preset {whole!r}: there is no hardware {name!r}; {hint}")
    cores = min(_CORES[name].cores, MAX_DEVICES) if name in _CORES else 0
    most = MAX_DEVICES if name in GPUS else cores or MAX_SOCKETS
    if not 1 <= number <= most:
        raise InvalidTopology(f"preset {whole!r} asks for {number} of {name!r}; 1 to {most} are possible")
    figures = GPUS.get(name) or _CORES.get(name) or CPUS[name]
    return name, number, figures if memory_bytes is None else replace(figures, memory_bytes=memory_bytes)


def _cores_of_a_socket(name: str, kind: str, number: int, figures: Figures) -> Topology:
    """Cores of one socket and the sets of them that `auto` offers on a machine; their rates add up to those of the socket."""
    cores = _CORES[kind].cores
    reals = [parse_real(text) for text in (*(f"cpu:{core}" for core in range(number)), *core_sets(range(number)))]
    devices = []
    for real in reals:
        count = len(real.cores)
        bandwidth = min(count * CORE_BANDWIDTH_BYTES_PER_S, figures.memory_bandwidth_bytes_per_s)
        rates = {dtype: rate * count / cores for dtype, rate in figures.peak_flops_per_s.items()}
        devices.append(
            Device(
                real.name.partition("[")[0], f"cpu-{kind.removesuffix('-core')}-x{count}", figures.memory_bytes, rates, bandwidth,
                DISPATCH_OVERHEAD_S, resources=occupied(real, reals), memory_pool="socket",
            )
        )  # fmt: skip
    links = tuple(Link(a.name, b.name, CORE_LATENCY_S, CORE_COPY_BYTES_PER_S) for a, b in permutations(devices, 2))
    return Topology(name, tuple(devices), links)


def _device(name: str, kind: str, figures: Figures) -> Device:
    bandwidth = figures.memory_bandwidth_bytes_per_s
    return Device(name, kind, figures.memory_bytes, figures.peak_flops_per_s, bandwidth, DISPATCH_OVERHEAD_S)


def _links(gpus: list[tuple[Device, GpuFigures]], cpus: list[Device], host: Figures) -> Iterator[Link]:
    """Links to the host, through switches between GPUs, and between sockets.

    The links from a GPU to all others share its outgoing rate.
    """
    for device, figures in gpus:
        kind, number = device.name.split(":")
        board = f"pcie:{kind}:{int(number) // figures.gpus_per_board}"
        yield Link("cpu:0", device.name, PCIE_LATENCY_S, figures.link_bytes_per_s, f"{board}:in")
        yield Link(device.name, "cpu:0", PCIE_LATENCY_S, figures.link_bytes_per_s, f"{board}:out")
    for (source, figures), (target, _) in permutations(gpus, 2):
        if figures.nvlink_bytes_per_s is not None and source.kind == target.kind:
            channel = f"nvlink:{source.name}:out"
            yield Link(source.name, target.name, NVLINK_LATENCY_S, figures.nvlink_bytes_per_s, channel)
    for one, other in permutations(cpus, 2):
        yield Link(one.name, other.name, SOCKET_LATENCY_S, host.link_bytes_per_s)

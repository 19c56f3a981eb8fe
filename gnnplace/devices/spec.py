"""Device sets from the text of `--devices`: a topology file, a preset, real devices, or `auto`."""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gnnplace.devices.cuda_driver import gpus
from gnnplace.devices.detect import (
    CORE_COPY_BYTES_PER_S,
    CORE_LATENCY_S,
    accelerator,
    allowed_cores,
    host_device,
    multiprocessors,
    numa_nodes,
    occupied,
)
from gnnplace.devices.json_format import read_topology
from gnnplace.devices.presets import preset
from gnnplace.devices.real_names import (
    RealDevice,
    core_sets,
    means_real_devices,
    parse_real,
    provider_devices,
    split_names,
)
from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.errors import InvalidTopology
from gnnplace.host_memory import total_memory_bytes

# Estimates until a probe replaces them.
GPU_LATENCY_S, GPU_BANDWIDTH_BYTES_PER_S = 20e-6, 12e9  # a copy over PCIe 3.0 with its launch
SLICE_LATENCY_S, SLICE_BANDWIDTH_BYTES_PER_S = 20e-6, 1e12  # slices of a GPU share its memory
_MAIN_MEMORY = "main memory"  # the pool of all devices on cores


def load_topology(spec: str, with_gpus: bool = True, providers: Sequence[str] = ()) -> Topology:
    """The device set of a text: a `.json` file, a preset, real devices (`cpu:0,cuda:0`; see `real_names`), or `auto`.

    `auto` means one device per core that this process may use, and every NVIDIA GPU unless `with_gpus` is false. One core for each
    GPU, of at most a quarter of the cores, is left to the threads that drive the GPUs. Without a GPU, `auto` also has
    sets of 2, 4, 8, ... cores, those of each memory node, and all cores together (`core_sets`). With the names of ONNX Runtime's
    `providers`, it also has their devices, on the same cores and GPUs (`provider_devices`). Devices that use the same core exclude
    each other (`cpu:0,cpu:1,cpu:0-1`), and so do a GPU and its slices. Devices on cores share the machine's memory; that of a GPU slice is its multiprocessors' share; `memory=` gives a device a memory of its own.
    Slices of one GPU have equal sizes. Any two real devices have links.

    >>> load_topology("k40x2").device_names
    ('k40:0', 'k40:1', 'cpu:0')

    Raises:
        InvalidTopology: the text has no known form, or names a missing or repeated device.
    """
    text = spec.strip()
    if not text:
        raise InvalidTopology("the device set is empty; write for example cpu:0,cpu:1 or k40x4 or auto")
    with suppress(OSError):  # the text is too long for a path
        if text.endswith(".json") or Path(text).is_file():
            return read_topology(Path(text))
    if text == "auto":
        found = gpus() if with_gpus else ()
        cores = _computing_cores(len(found))
        names = [*(f"cpu:{core}" for core in cores), *(f"cuda:{gpu.index}" for gpu in found)]
        names += [] if found else core_sets(cores, numa_nodes())
        on_cores = [name for name in names if parse_real(name).family == "cpu"]
        names += provider_devices(providers, on_cores, len(found))
        return _real(text, [parse_real(name) for name in names])
    if means_real_devices(text):
        try:
            reals = [parse_real(name) for name in split_names(text)]
        except InvalidTopology as error:
            raise InvalidTopology(f"devices {text!r}: {error}") from None
        elsewhere = next((real for real in reals if real.host), None)
        if elsewhere is not None:
            raise InvalidTopology(
                f"devices {text!r}: {elsewhere.name} is on another host; name its cluster by --ray ADDRESS, or give the topology that gnnplace devices --ray ADDRESS --json writes"
            )
        return _real(text, reals)
    return preset(text)


def _computing_cores(num_gpus: int) -> tuple[int, ...]:
    """The cores that `auto` offers: all but one for each GPU, whose threads it keeps free, of at most a quarter of them."""
    cores = allowed_cores()
    return cores[: len(cores) - min(num_gpus, len(cores) // 4)]


def with_session_device(topology: Topology, name: str) -> Topology:
    """The topology with one more device for a plain session over cores of its devices; the device has their memory and no links."""
    real = parse_real(name)
    memories = dict(zip(topology.memory_home.tolist(), topology.devices, strict=True))  # one device for each memory
    cpus = [device.memory_bytes for device in memories.values() if parse_real(device.name).family == "cpu"]
    memory = None if None in cpus else sum(filter(None, cpus))
    pools = {device.memory_pool for device in topology.devices if parse_real(device.name).family == "cpu"}
    device = dataclasses.replace(
        host_device(real, len(real.cores)), memory_bytes=memory, memory_pool=pools.pop() if len(pools) == 1 else None,
        resources=occupied(real, [real]),
    )  # fmt: skip
    return dataclasses.replace(topology, devices=(*topology.devices, device))


def _real(name: str, reals: Sequence[RealDevice]) -> Topology:
    """The topology of real devices, with links between any two."""
    _check_devices(name, reals)
    memory_bytes, on_gpus = total_memory_bytes(), _gpu_devices(name, reals)
    devices_on_gpu = Counter(real.nvidia_gpu for real in reals if real.sms is None)
    devices = []
    for real in reals:
        if real.on_host:
            device = host_device(real, len(real.cores or allowed_cores()))
            device = dataclasses.replace(device, memory_bytes=memory_bytes, memory_pool=_MAIN_MEMORY)
        else:
            device = on_gpus.get(real.name) or accelerator(real, None)
            if real.nvidia_gpu is not None and real.sms is None and devices_on_gpu[real.nvidia_gpu] > 1:
                device = dataclasses.replace(device, memory_pool=f"memory of cuda:{real.nvidia_gpu}")
        if real.memory_bytes is not None:
            device = dataclasses.replace(device, memory_bytes=real.memory_bytes, memory_pool=None)
        devices.append(dataclasses.replace(device, resources=occupied(real, reals)))
    return Topology(name, tuple(devices), tuple(_link(a, b) for a in reals for b in reals if a is not b))


def _check_devices(name: str, reals: Sequence[RealDevice]) -> None:
    """Checks that every core exists, and that no device is listed twice."""
    seen: dict[object, str] = {}
    for real in (real for real in reals if real.gpu is None):
        key = real.provider, real.device_id, real.cores, tuple(sorted(real.options.items()))
        if key in seen:
            same = f"; {real.name} is the same device" if real.name != seen[key] else ""
            raise InvalidTopology(f"devices {name!r}: {seen[key]} is listed twice{same}; list every device once")
        seen[key] = real.name
    allowed = allowed_cores()
    missing = next((core for real in reals for core in real.cores if core not in allowed), None)
    if missing is not None:
        cores = ", ".join(map(str, allowed))
        raise InvalidTopology(f"devices {name!r}: core {missing} is not open to this process; it may use {cores}")


def _gpu_devices(name: str, reals: Sequence[RealDevice]) -> dict[str, Device]:
    """Every device on an NVIDIA GPU by its name, a slice with its share of the GPU."""
    on_gpu: dict[int, list[RealDevice]] = defaultdict(list)
    for real in reals:
        if real.nvidia_gpu is not None:
            on_gpu[real.nvidia_gpu].append(real)
    known = gpus() if on_gpu else ()
    found: dict[str, Device] = {}
    for index, devices in on_gpu.items():
        if index >= len(known):
            seen = f"cuda:0 to cuda:{len(known) - 1}" if known else "none"
            raise InvalidTopology(f"devices {name!r}: there is no GPU cuda:{index}; the NVIDIA driver shows {seen}")
        own = [real for real in devices if real.gpu is not None]
        twice = [key for key, count in Counter((real.sms, real.slice) for real in own).items() if count > 1]
        if twice:
            raise InvalidTopology(
                f"devices {name!r}: cuda:{index} is listed twice; list every device once, or slices: "
                f"cuda:{index}[sms=N,slice=0],cuda:{index}[sms=N,slice=1]"
            )
        if len({real.sms for real in own} - {None}) > 1:
            raise InvalidTopology(f"devices {name!r}: slices of cuda:{index} differ; all need the same sms")
        found |= {real.name: accelerator(real, known[index], _share(real)) for real in devices}
    return found


def _share(real: RealDevice) -> float:
    """The device's share of its GPU's streaming multiprocessors."""
    if real.sms is None:
        return 1.0
    available = multiprocessors(int(real.device_id))
    if available is None:
        raise InvalidTopology(
            f"device {real.name!r}: the CUDA driver reports no number of streaming multiprocessors; "
            f"take the whole GPU, cuda:{real.gpu}"
        )
    if (real.slice + 1) * real.sms > available:
        raise InvalidTopology(
            f"device {real.name!r} ends at multiprocessor {(real.slice + 1) * real.sms}, and cuda:{real.gpu} has {available}; "
            f"its slices of {real.sms} are slice=0 to slice={max(available // real.sms - 1, 0)}"
        )
    return real.sms / available


def _link(source: RealDevice, target: RealDevice) -> Link:
    costs = GPU_LATENCY_S, GPU_BANDWIDTH_BYTES_PER_S
    if source.on_host and target.on_host:
        costs = CORE_LATENCY_S, CORE_COPY_BYTES_PER_S
    elif source.gpu is not None and source.gpu == target.gpu:
        costs = SLICE_LATENCY_S, SLICE_BANDWIDTH_BYTES_PER_S
    return Link(source.name, target.name, *costs)

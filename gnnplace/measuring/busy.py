"""Utilization of real devices by other work, which would distort measurements."""

from collections.abc import Callable, Iterable

import psutil

from gnnplace.devices.detect import gpu_use
from gnnplace.devices.real_names import RealDevice
from gnnplace.errors import MeasurementFailed
from gnnplace.isolated_process import IsolatedProcess, ProcessEnded
from gnnplace.running.devices import parse_device
from gnnplace.running.gpu_streams import slice_stream
from gnnplace.versions import installed_versions

BUSY = 0.5
"""Utilization of a device by other work above which nothing is measured there without `--force`."""
NOTICED = 0.1
"""Utilization above which a warning appears."""
_SAMPLE_S = 0.5
_TRIAL_S = 60.0


def measuring_conditions() -> dict[str, float | str | None]:
    """What seconds depend on besides the machine: load average, clock of the CPU, timer, and versions."""
    clock = psutil.cpu_freq()
    return {
        "load_average": psutil.getloadavg()[0],
        "cpu_mhz": None if clock is None else clock.current,
        "timer": "perf_counter",
        **installed_versions("gnnplace", "onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino"),
    }


def busy_shares(devices: Iterable[str]) -> dict[str, float]:
    """Utilization (0 to 1) of each real device, or of its busiest core, over half a second; 0 where it is unknown.

    Raises:
        InvalidTopology: a device is not on this machine.
    """
    real = list(map(parse_device, devices))
    gpus = gpu_use() if any(device.gpu is not None for device in real) else []
    cores = psutil.cpu_percent(interval=_SAMPLE_S, percpu=True)
    shares = {}
    for device in real:
        used = [cores[core] for core in device.cores if core < len(cores)]
        if device.gpu is not None:
            used += gpus[device.gpu : device.gpu + 1]
        shares[device.name] = max(used, default=0.0) / 100
    return shares


def check_free(devices: Iterable[str], force: bool = False) -> tuple[str, ...]:
    """Warnings about devices that other work uses, and about slices of a GPU that are not isolated.

    Raises:
        MeasurementFailed: a device is busy, and `force` is false.
        InvalidTopology: a device is not on this machine.
    """
    names = list(devices)
    warnings = shared_slices(map(parse_device, names))
    used = {name: share for name, share in busy_shares(names).items() if share >= NOTICED}
    if not used:
        return warnings
    text = ", ".join(f"{name} ({share:.0%})" for name, share in used.items())
    if max(used.values()) >= BUSY and not force:
        raise MeasurementFailed(
            f"other work runs on {text}, and seconds measured beside it would mislead; wait, take other devices, or add --force"
        )
    return (f"other work runs on {text}: measured seconds may be too long", *warnings)


def shared_slices(devices: Iterable[RealDevice]) -> tuple[str, ...]:
    """A warning for each slice that shares its multiprocessors with the rest of the GPU.

    A process that ends tries it, as each slice takes a context in the driver and memory on its GPU.
    """
    slices = [device for device in devices if device.sms is not None]
    if not slices:
        return ()
    with IsolatedProcess(_stream_maker, "process that slices GPUs") as process:
        try:
            found = [process.call((one.device_id, one.sms or 0, one.slice), _TRIAL_S) for one in slices]
        except ProcessEnded as end:
            return (f"whether the slices of GPUs are isolated is unknown: {end}",)
    return tuple(
        f"{device.name} is not isolated and may use the whole GPU, so slices slow each other down: {reason}"
        for device, reason in zip(slices, found, strict=True)
        if isinstance(reason, str)
    )


def _stream_maker() -> Callable[[tuple[str, int, int]], int | str]:
    return lambda one: slice_stream(*one)

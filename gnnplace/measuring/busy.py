"""Whether devices are free and apart: what other work takes away belongs to no measurement."""

from __future__ import annotations

from collections.abc import Iterable

import psutil

from gnnplace.devices.detect import gpu_use
from gnnplace.errors import MeasurementFailed
from gnnplace.running.devices import parse_devices
from gnnplace.running.gpu_slices import shared_slices

__all__ = ["BUSY", "NOTICED", "busy_shares", "check_free"]


BUSY = 0.5
"""Share of a device that other work uses, from which on nothing is measured there unless that is asked for."""
NOTICED = 0.1
"""The share from which on it is said."""
_LOOK_S = 0.5


def busy_shares(devices: Iterable[str]) -> dict[str, float]:
    """The share of each real device that is in use now, of its busiest core, from half a second of looking; 0 where nobody knows.

    Raises:
        InvalidTopology: a device is not on this machine.
    """
    real = parse_devices(list(devices))
    gpus = gpu_use() if any(device.gpu is not None for device in real) else []
    cores = psutil.cpu_percent(interval=_LOOK_S, percpu=True)
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
        MeasurementFailed: one is busy, and measuring there is not forced.
        InvalidTopology: a device is not on this machine.
    """
    names = list(devices)
    warnings = shared_slices(parse_devices(names))
    used = {name: share for name, share in busy_shares(names).items() if share >= NOTICED}
    if not used:
        return warnings
    what = ", ".join(f"{name} ({share:.0%})" for name, share in used.items())
    if max(used.values()) >= BUSY and not force:
        raise MeasurementFailed(
            f"other work runs on {what}, and seconds measured beside it would mislead; wait, take other devices, or add --force"
        )
    return (f"other work runs on {what}: measured seconds may be too long", *warnings)

"""Whether devices are free: what other work takes away belongs to no measurement."""

from __future__ import annotations

from collections.abc import Iterable

import psutil

from gnnplace.devices.detect import gpu_use
from gnnplace.errors import MeasurementFailed
from gnnplace.executors.devices import parse_device

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
    real = [parse_device(name) for name in devices]
    gpus = gpu_use() if any(device.cuda_id is not None for device in real) else []
    cores = psutil.cpu_percent(interval=_LOOK_S, percpu=True)
    shares = {}
    for device in real:
        found, numbers = (cores, device.cores) if device.cuda_id is None else (gpus, (device.cuda_id,))
        shares[device.name] = max((found[number] / 100 for number in numbers if number < len(found)), default=0.0)
    return shares


def check_free(devices: Iterable[str], force: bool = False) -> tuple[str, ...]:
    """Warnings about devices that other work uses.

    Raises:
        MeasurementFailed: one is busy, and measuring there is not forced.
        InvalidTopology: a device is not on this machine.
    """
    used = {name: share for name, share in busy_shares(devices).items() if share >= NOTICED}
    if not used:
        return ()
    what = ", ".join(f"{name} ({share:.0%})" for name, share in used.items())
    if max(used.values()) >= BUSY and not force:
        raise MeasurementFailed(
            f"other work runs on {what}, and seconds measured beside it would mislead; wait, take other devices, or add --force"
        )
    return (f"other work runs on {what}: measured seconds may be too long",)

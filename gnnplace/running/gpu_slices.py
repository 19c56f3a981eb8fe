"""Slices of a GPU: streams that run on some of its streaming multiprocessors and on no others (CUDA green contexts)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from gnnplace.devices.real_names import RealDevice

__all__ = ["SliceStream", "green_stream", "shared_slices", "slice_stream"]


_AS_THE_DRIVER_LIKES, _SINGLE_MULTIPROCESSORS = 0, 1  # CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING


@dataclass(frozen=True)
class SliceStream:
    """Where the kernels of a slice go."""

    handle: int | None
    """A CUDA stream that all sessions of the slice share; None: each session makes one of its own, on the whole GPU."""
    reason: str = ""
    """Why the slice is not isolated."""


def slice_stream(device: RealDevice) -> SliceStream:
    """The stream of a slice, made once per process; without cuda-bindings or a driver that can, none and the reason."""
    assert device.gpu is not None
    assert device.sms is not None
    return _slice_stream(device.gpu, device.sms, device.slice)


def shared_slices(devices: Iterable[RealDevice]) -> tuple[str, ...]:
    """A warning for each slice that shares its multiprocessors with the rest of the GPU."""
    streams = {device.name: slice_stream(device) for device in devices if device.sms is not None}
    return tuple(
        f"{name} is not isolated and may use the whole GPU, so slices slow each other down: {stream.reason}"
        for name, stream in streams.items()
        if stream.handle is None
    )


def green_stream(driver: Any, gpu: int, sms: int, index: int) -> int:
    """The handle of a stream on the `index`-th group of `sms` multiprocessors; `driver` is `cuda.bindings.driver`.

    The split is a function of GPU and `sms` alone, so slices of one size never overlap, in one process or in several.
    The driver splits in clusters of multiprocessors where that gives groups of exactly `sms`, else it is told to treat
    each multiprocessor alone, which rules out kernels in large clusters.

    Raises:
        RuntimeError: the driver cannot or will not.
    """

    def ask(name: str, *arguments: Any) -> Any:
        result, *values = getattr(driver, name)(*arguments)
        if int(result) != 0:
            raise RuntimeError(f"{name} answers {getattr(result, 'name', result)}")
        return values[0] if len(values) == 1 else values

    ask("cuInit", 0)
    device = ask("cuDeviceGet", gpu)
    ask("cuDevicePrimaryCtxRetain", device)  # ONNX Runtime's context; a green context is made within it
    whole = ask("cuDeviceGetDevResource", device, driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM)
    wanted = whole.sm.smCount // sms
    for flags in (_AS_THE_DRIVER_LIKES, _SINGLE_MULTIPROCESSORS):
        groups, count, _rest = ask("cuDevSmResourceSplitByCount", wanted, whole, flags, sms)
        sizes = [group.sm.smCount for group in groups[:count]]
        if index < wanted and sizes == [sms] * wanted:
            break
    else:
        raise RuntimeError(f"the driver makes no {wanted} groups of {sms} of {whole.sm.smCount} multiprocessors")
    description = ask("cuDevResourceGenerateDesc", [groups[index]], 1)
    context = ask("cuGreenCtxCreate", description, device, driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM)
    return int(ask("cuGreenCtxStreamCreate", context, driver.CUstream_flags.CU_STREAM_NON_BLOCKING, 0))


@cache
def _slice_stream(gpu: int, sms: int, index: int) -> SliceStream:
    try:
        from cuda.bindings import driver
    except ImportError:
        return SliceStream(None, "cuda-bindings is not installed")
    try:
        return SliceStream(green_stream(driver, gpu, sms, index))
    except RuntimeError as error:  # also what cuda-bindings raises where driver or function are missing
        return SliceStream(None, " ".join(str(error).split()))

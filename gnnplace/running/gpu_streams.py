"""The CUDA streams that sessions share: one for each GPU, and one for each slice of a GPU, by CUDA's green contexts."""

from contextlib import suppress
from functools import cache
from typing import Any

from gnnplace.devices.cuda_driver import shared_stream
from gnnplace.devices.real_names import RealDevice

_DEFAULT_SPLIT, _SINGLE_MULTIPROCESSORS = 0, 1  # CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING


def device_stream(device: RealDevice) -> int | None:
    """The CUDA stream that all sessions on a device share in this process; None: each session has its own.

    On an H100, 50 sessions with streams of their own took 7.7 GiB and 52 us for a part of four kernels; with one stream they took
    4.1 GiB and 43 us.
    """
    if device.gpu is None:
        return None
    if device.sms is not None:
        stream = slice_stream(device.device_id, device.sms, device.slice)
        return stream if isinstance(stream, int) else None
    with suppress(RuntimeError):
        return shared_stream(device.gpu)
    return None


@cache
def slice_stream(gpu: str, sms: int, index: int) -> int | str:
    """The CUDA stream that all sessions of a slice share, made once per process.

    Without cuda-bindings or driver support, the reason: each session then has its own stream on the whole GPU.
    """
    try:
        from cuda.bindings import driver
    except ImportError:
        return "cuda-bindings is not installed"
    try:
        return green_stream(driver, int(gpu), sms, index)
    except RuntimeError as error:  # cuda-bindings also raises it for a missing driver or function
        return " ".join(str(error).split())


def green_stream(driver: Any, gpu: int, sms: int, index: int) -> int:
    """The handle of a stream on the `index`-th group of `sms` multiprocessors; `driver` is `cuda.bindings.driver`.

    The split depends on the GPU and `sms` alone, so slices of one size never overlap, in one process or in several. The
    driver splits in clusters of multiprocessors where that gives groups of exactly `sms`. Otherwise it treats each
    multiprocessor alone, which rules out kernels in large clusters.

    Raises:
        RuntimeError: the driver does not support green contexts, or refuses the split.
    """

    def call(name: str, *arguments: Any) -> Any:
        result, *values = getattr(driver, name)(*arguments)
        if int(result) != 0:
            raise RuntimeError(f"{name} answers {getattr(result, 'name', result)}")
        return values[0] if len(values) == 1 else values

    call("cuInit", 0)
    device = call("cuDeviceGet", gpu)
    call("cuDevicePrimaryCtxRetain", device)  # ONNX Runtime's context; a green context is made within it
    whole = call("cuDeviceGetDevResource", device, driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM)
    num_groups = whole.sm.smCount // sms
    for flags in (_DEFAULT_SPLIT, _SINGLE_MULTIPROCESSORS):
        groups, count, _rest = call("cuDevSmResourceSplitByCount", num_groups, whole, flags, sms)
        sizes = [group.sm.smCount for group in groups[:count]]
        if index < num_groups and sizes == [sms] * num_groups:
            break
    else:
        raise RuntimeError(f"the driver makes no {num_groups} groups of {sms} of {whole.sm.smCount} multiprocessors")
    description = call("cuDevResourceGenerateDesc", [groups[index]], 1)
    context = call("cuGreenCtxCreate", description, device, driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM)
    return int(call("cuGreenCtxStreamCreate", context, driver.CUstream_flags.CU_STREAM_NON_BLOCKING, 0))

"""Streams that sessions share and slices of a GPU, against a stand-in for the CUDA driver that keeps its rules."""

from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import pytest

from gnnplace.devices.real_names import parse_real
from gnnplace.running import gpu_streams
from gnnplace.running.devices import provider_options
from gnnplace.running.gpu_streams import device_stream, green_stream, slice_stream


class Result(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_NOT_SUPPORTED = 801


class Driver:
    """A GPU whose driver splits in eights unless the flags ignore clusters; a stream's handle is its first multiprocessor."""

    CUdevResourceType = SimpleNamespace(CU_DEV_RESOURCE_TYPE_SM=1)
    CUgreenCtxCreate_flags = SimpleNamespace(CU_GREEN_CTX_DEFAULT_STREAM=1)
    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)

    def __init__(self, multiprocessors: int, refuses: str = "") -> None:
        self.multiprocessors, self.refuses = multiprocessors, refuses
        self.flags: list[int] = []

    def __getattribute__(self, name: str) -> Any:
        if name == object.__getattribute__(self, "refuses"):
            return lambda *_: (Result.CUDA_ERROR_NOT_SUPPORTED, None)
        return object.__getattribute__(self, name)

    def cuInit(self, flags: int) -> Any:  # noqa: N802  # the driver's name, as below
        return (Result.CUDA_SUCCESS,)

    def cuDeviceGet(self, ordinal: int) -> Any:  # noqa: N802
        return Result.CUDA_SUCCESS, f"device {ordinal}"

    def cuDevicePrimaryCtxRetain(self, device: str) -> Any:  # noqa: N802
        return Result.CUDA_SUCCESS, "context"

    def cuDeviceGetDevResource(self, device: str, kind: int) -> Any:  # noqa: N802
        assert (device, kind) == ("device 3", 1)
        return Result.CUDA_SUCCESS, self.group(0, self.multiprocessors)

    def cuDevSmResourceSplitByCount(self, count: int, whole: Any, flags: int, least: int) -> Any:  # noqa: N802
        self.flags.append(flags)
        step = 1 if flags else 8
        size = -(-least // step) * step
        made = min(count, whole.sm.smCount // size)
        groups = [self.group(index * size, size) for index in range(made)]
        blank = [self.group(0, 0)] * (count - made)
        return Result.CUDA_SUCCESS, groups + blank, made, self.group(made * size, whole.sm.smCount - made * size)

    def cuDevResourceGenerateDesc(self, resources: list[Any], count: int) -> Any:  # noqa: N802
        assert len(resources) == count == 1
        return Result.CUDA_SUCCESS, resources[0]

    def cuGreenCtxCreate(self, description: Any, device: str, flags: int) -> Any:  # noqa: N802
        assert (device, flags) == ("device 3", 1)
        return Result.CUDA_SUCCESS, description

    def cuGreenCtxStreamCreate(self, context: Any, flags: int, priority: int) -> Any:  # noqa: N802
        assert (flags, priority) == (1, 0)
        return Result.CUDA_SUCCESS, context.first

    @staticmethod
    def group(first: int, count: int) -> Any:
        return SimpleNamespace(first=first, sm=SimpleNamespace(smCount=count))


@pytest.mark.parametrize(("sms", "flags"), [(64, [0, 0]), (66, [0, 1, 0, 1])], ids=["clusters", "single"])
def test_slices_are_disjoint_and_consist_of_clusters_where_their_size_allows(sms: int, flags: list[int]) -> None:
    driver = Driver(132)
    assert [green_stream(driver, 3, sms, index) for index in range(2)] == [0, sms]
    assert driver.flags == flags


@pytest.mark.parametrize(("sms", "index"), [(66, 2), (133, 0)])
def test_a_slice_beyond_the_gpu_is_refused(sms: int, index: int) -> None:
    with pytest.raises(RuntimeError, match=f"the driver makes no {132 // sms} groups of {sms} of 132"):
        green_stream(Driver(132), 3, sms, index)


def test_the_error_names_the_call_that_the_driver_refuses() -> None:
    with pytest.raises(RuntimeError, match="cuGreenCtxCreate answers CUDA_ERROR_NOT_SUPPORTED"):
        green_stream(Driver(132, refuses="cuGreenCtxCreate"), 3, 66, 0)


def test_sessions_on_a_gpu_or_a_slice_share_a_stream_and_each_has_its_own_on_request_or_without_a_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    streams: dict[int, int | str] = {0: 4096, 1: "no driver"}

    def stream(gpu: int) -> int:
        if gpu == 1:
            raise RuntimeError("there is no CUDA driver")
        return 4000 + gpu

    monkeypatch.setattr(gpu_streams, "slice_stream", lambda gpu, sms, index: streams[index])
    monkeypatch.setattr(gpu_streams, "shared_stream", stream)
    names = ["cpu:0", "cuda:0", "cuda:2", "cuda:1", "cuda:0[sms=8]", "cuda:0[sms=8,slice=1]", "ep:TensorRT:0"]
    assert [device_stream(parse_real(name)) for name in names] == [None, 4000, 4002, None, 4096, None, None]
    assert provider_options(parse_real("cuda:2")) == {"device_id": "2", "user_compute_stream": "4002"}
    assert provider_options(parse_real("cuda:2[own_stream=1]")) == {"device_id": "2"}


def test_without_the_driver_a_slice_has_no_stream_and_a_reason() -> None:
    reason = slice_stream("999", 8, 0)  # no machine has that many GPUs
    assert isinstance(reason, str)
    assert reason
    assert slice_stream("999", 8, 0) is reason

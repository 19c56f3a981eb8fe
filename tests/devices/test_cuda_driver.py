"""GPUs as CUDA numbers them, against a stand-in for the driver library that keeps its rules."""

import ctypes
import json
import os
import subprocess
import sys
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest

from gnnplace.devices import cuda_driver
from gnnplace.devices.cuda_driver import (
    Gpu,
    copied_to_host,
    cuda_version,
    free_pinned_memory,
    gpus,
    gpus_of,
    pinned_memory,
    shared_stream,
)

FAST = ("NVIDIA H200", UUID(int=0xB), 132, 143 * 2**30)
SLOW = ("Tesla T4", UUID(int=0xA), 40, 15 * 2**30)
BY_BUS = (SLOW, FAST)  # as nvidia-smi lists them
_OK, _NO_DEVICE = 0, 100


class Driver:
    """A machine with two GPUs, in the order of `CUDA_DEVICE_ORDER` and cut down by `CUDA_VISIBLE_DEVICES`."""

    def __init__(self) -> None:
        order = os.environ.get("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
        known = list(BY_BUS) if order == "PCI_BUS_ID" else sorted(BY_BUS, key=lambda gpu: -gpu[2])
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(",")
        self.gpus = []
        for entry in visible:
            with suppress(ValueError, IndexError):
                by_uuid = next((gpu for gpu in known if entry and f"GPU-{gpu[1]}".startswith(entry)), None)
                self.gpus.append(known[int(entry)] if by_uuid is None else by_uuid)
        self.contexts: list[int] = []
        self.made = 0
        self.pinned: dict[int, tuple[int, Any]] = {}

    def cuInit(self, flags: int) -> int:  # noqa: N802  # the driver's names, here and below
        return _OK if self.gpus else _NO_DEVICE

    def cuDriverGetVersion(self, version: Any) -> int:  # noqa: N802
        version._obj.value = 12040
        return _OK

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802
        count._obj.value = len(self.gpus)
        return _OK

    def cuDeviceGet(self, device: Any, index: Any) -> int:  # noqa: N802
        device._obj.value = 70 + int(getattr(index, "value", index))
        return _OK

    def cuDeviceGetName(self, name: Any, size: int, device: Any) -> int:  # noqa: N802
        name.value = self.gpus[device.value - 70][0].encode()
        return _OK

    def cuDeviceGetUuid_v2(self, uuid: Any, device: Any) -> int:  # noqa: N802
        uuid._obj[:] = self.gpus[device.value - 70][1].bytes
        return _OK

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: Any) -> int:  # noqa: N802
        assert attribute == 16
        value._obj.value = self.gpus[device.value - 70][2]
        return _OK

    def cuDeviceTotalMem_v2(self, memory: Any, device: Any) -> int:  # noqa: N802
        memory._obj.value = self.gpus[device.value - 70][3]
        return _OK

    def cuPointerGetAttribute(self, value: Any, attribute: int, address: Any) -> int:  # noqa: N802
        assert attribute == 9
        value._obj.value = 1
        return _OK

    def cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> int:  # noqa: N802
        context._obj.value = device.value
        return _OK

    def cuCtxPushCurrent_v2(self, context: Any) -> int:  # noqa: N802
        self.contexts.append(context.value)
        return _OK

    def cuCtxPopCurrent_v2(self, context: Any) -> int:  # noqa: N802
        self.contexts.pop()
        return _OK

    def cuMemcpyDtoH_v2(self, target: Any, address: Any, size: Any) -> int:  # noqa: N802
        assert self.contexts == [71]  # of the GPU that holds the address
        ctypes.memmove(target, address.value, size.value)
        return _OK

    def cuMemHostAlloc(self, address: Any, size: Any, flags: int) -> int:  # noqa: N802
        assert flags == 1
        memory = ctypes.create_string_buffer(size.value)
        address._obj.value = ctypes.addressof(memory)
        self.pinned[address._obj.value] = self.contexts[-1], memory
        return _OK

    def cuMemFreeHost(self, address: Any) -> int:  # noqa: N802
        context, _ = self.pinned.pop(address.value)
        assert self.contexts == [context]
        return _OK

    def cuStreamCreate(self, stream: Any, flags: int) -> int:  # noqa: N802
        assert (self.contexts, flags) == ([70], 1)
        self.made += 1
        stream._obj.value = 4096 + self.made
        return _OK


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A fresh process without settings for CUDA, whose driver is the stand-in."""

    def run(*_: Any, env: dict[str, str] | None = None, **__: Any) -> SimpleNamespace:
        with patch.dict(os.environ, os.environ if env is None else env, clear=env is not None):
            try:
                found = [vars(gpu) for gpu in gpus_of(Driver())]
            except RuntimeError:
                found = []
        return SimpleNamespace(stdout=json.dumps(found))

    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cuda_driver.subprocess, "run", run)
    cuda_driver._visible.cache_clear()
    return monkeypatch


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({}, [FAST, SLOW]),
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, [SLOW, FAST]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, [SLOW]),
        ({"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, [FAST]),
        ({"CUDA_VISIBLE_DEVICES": f"GPU-{SLOW[1]},0"}, [SLOW, FAST]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "-9"}, []),
    ],
)
def test_gpus_have_the_indices_that_cuda_gives_them(
    settings: dict[str, str], found: list[Any], environment: pytest.MonkeyPatch
) -> None:
    for name, value in settings.items():
        environment.setenv(name, value)
    assert list(gpus()) == [
        Gpu(index, name, memory, cores, str(uuid)) for index, (name, uuid, cores, memory) in enumerate(found)
    ]


def test_the_driver_is_asked_again_where_the_settings_changed(environment: pytest.MonkeyPatch) -> None:
    assert [gpu.name for gpu in gpus()] == [FAST[0], SLOW[0]]
    environment.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert [gpu.name for gpu in gpus()] == [SLOW[0], FAST[0]]
    environment.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [gpu.name for gpu in gpus()] == [FAST[0]]


def test_the_driver_states_its_version_of_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver, "_driver", Driver)
    assert cuda_version() == (12, 4)
    monkeypatch.undo()
    monkeypatch.setattr(cuda_driver, "_LIBRARY", "libabsent.so")
    assert cuda_version() is None


def test_the_program_that_asks_the_driver_needs_no_package() -> None:
    command = [sys.executable, "-I", "-S", cuda_driver.__file__]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert isinstance(json.loads(done.stdout), list)


def test_without_an_answer_there_is_no_gpu(environment: pytest.MonkeyPatch) -> None:
    for error in (OSError("no python"), subprocess.TimeoutExpired("python", 60.0)):

        def fail(*_: Any, error: Exception = error, **__: Any) -> None:
            raise error

        environment.setattr(cuda_driver.subprocess, "run", fail)
        cuda_driver._visible.cache_clear()
        assert gpus() == ()
    cuda_driver._visible.cache_clear()


def test_bytes_are_copied_in_the_context_of_the_gpu_that_holds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    monkeypatch.setattr(cuda_driver, "_driver", lambda: driver)
    held = ctypes.create_string_buffer(b"0123456789")
    assert copied_to_host(ctypes.addressof(held), 4) == b"0123"
    assert driver.contexts == []


def test_pinned_memory_is_made_and_ended_in_the_context_of_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    monkeypatch.setattr(cuda_driver, "_driver", lambda: driver)
    address = pinned_memory(16, 1)
    assert [context for context, _ in driver.pinned.values()] == [71]
    ctypes.memset(address, 1, 16)
    free_pinned_memory(address, 1)
    assert (driver.pinned, driver.contexts) == ({}, [])


def test_a_gpu_has_one_shared_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    monkeypatch.setattr(cuda_driver, "_driver", lambda: driver)
    shared_stream.cache_clear()
    assert shared_stream(0) == shared_stream(0) == 4097
    assert driver.contexts == []
    shared_stream.cache_clear()


def test_a_call_that_the_driver_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    driver.gpus = []
    with pytest.raises(RuntimeError, match="CUDA's cuInit answers error 100"):
        gpus_of(driver)

    def absent(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(cuda_driver.ctypes, "CDLL", absent)
    with pytest.raises(RuntimeError, match=r"there is no CUDA driver: libcuda\.so\.1"):
        copied_to_host(0, 1)

"""ONNX Runtime's C interface through ctypes: sessions and tensors of main memory.

The table of functions only grows, so a function keeps its position: the positions below are those of the declarations in
`onnxruntime_c_api.h`, from version 1.24 on.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Iterator, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import onnxruntime as ort

from gnnplace.devices.real_names import RealDevice
from gnnplace.errors import MeasurementFailed, MissingDependency
from gnnplace.onnx_io.external_data import ExternalWeight, external_weights
from gnnplace.onnx_io.part import Part
from gnnplace.running.devices import check_assignment, log_level, provider_options, session_settings

_API_VERSION = 24
# Position and types of the arguments of each function; all return a status but those of `_NO_STATUS`.
_FUNCTIONS: dict[str, tuple[int, tuple[Any, ...]]] = {
    "GetErrorMessage": (2, (c_void_p,)),
    "CreateEnv": (3, (c_int, c_char_p, POINTER(c_void_p))),
    "CreateSession": (7, (c_void_p, c_char_p, c_void_p, POINTER(c_void_p))),
    "CreateSessionFromArray": (8, (c_void_p, c_char_p, c_size_t, c_void_p, POINTER(c_void_p))),
    "Run": (9, (c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p)),
    "CreateSessionOptions": (10, (POINTER(c_void_p),)),
    "SetSessionExecutionMode": (13, (c_void_p, c_int)),
    "SetSessionLogSeverityLevel": (22, (c_void_p, c_int)),
    "SetSessionGraphOptimizationLevel": (23, (c_void_p, c_int)),
    "SetIntraOpNumThreads": (24, (c_void_p, c_int)),
    "SetInterOpNumThreads": (25, (c_void_p, c_int)),
    "SessionGetInputCount": (30, (c_void_p, POINTER(c_size_t))),
    "SessionGetOutputCount": (31, (c_void_p, POINTER(c_size_t))),
    "SessionGetInputTypeInfo": (33, (c_void_p, c_size_t, POINTER(c_void_p))),
    "SessionGetOutputTypeInfo": (34, (c_void_p, c_size_t, POINTER(c_void_p))),
    "CreateTensorWithDataAsOrtValue": (
        49, (c_void_p, c_void_p, c_size_t, POINTER(c_int64), c_size_t, c_int, POINTER(c_void_p)),
    ),
    "GetTensorMutableData": (51, (c_void_p, POINTER(c_void_p))),
    "CastTypeInfoToTensorInfo": (55, (c_void_p, POINTER(c_void_p))),
    "GetTensorElementType": (60, (c_void_p, POINTER(c_int))),
    "GetDimensionsCount": (61, (c_void_p, POINTER(c_size_t))),
    "GetDimensions": (62, (c_void_p, POINTER(c_int64), c_size_t)),
    "GetTensorTypeAndShape": (65, (c_void_p, POINTER(c_void_p))),
    "CreateCpuMemoryInfo": (69, (c_int, c_int, POINTER(c_void_p))),
    "ReleaseStatus": (93, (c_void_p,)),
    "ReleaseSession": (95, (c_void_p,)),
    "ReleaseValue": (96, (c_void_p,)),
    "ReleaseTypeInfo": (98, (c_void_p,)),
    "ReleaseTensorTypeAndShapeInfo": (99, (c_void_p,)),
    "ReleaseSessionOptions": (100, (c_void_p,)),
    "AddSessionConfigEntry": (130, (c_void_p, c_char_p, c_char_p)),
    "CreateAndRegisterAllocator": (144, (c_void_p, c_void_p, c_void_p)),
    "AddInitializer": (150, (c_void_p, c_char_p, c_void_p)),
    "CreatePrepackedWeightsContainer": (166, (POINTER(c_void_p),)),
    "ReleasePrepackedWeightsContainer": (167, (c_void_p,)),
    "CreateSessionWithPrepackedWeightsContainer": (
        168, (c_void_p, c_char_p, c_void_p, c_void_p, POINTER(c_void_p)),
    ),
    "CreateSessionFromArrayWithPrepackedWeightsContainer": (
        169, (c_void_p, c_char_p, c_size_t, c_void_p, c_void_p, POINTER(c_void_p)),
    ),
    "SessionOptionsAppendExecutionProvider": (216, (c_void_p, c_char_p, c_void_p, c_void_p, c_size_t)),
    "Session_GetEpGraphAssignmentInfo": (407, (c_void_p, POINTER(POINTER(c_void_p)), POINTER(c_size_t))),
    "EpAssignedSubgraph_GetEpName": (408, (c_void_p, POINTER(c_char_p))),
    "EpAssignedSubgraph_GetNodes": (409, (c_void_p, POINTER(POINTER(c_void_p)), POINTER(c_size_t))),
    "EpAssignedNode_GetOperatorType": (412, (c_void_p, POINTER(c_char_p))),
}  # fmt: skip
_NO_STATUS = {"GetErrorMessage": c_char_p}
_WARNING, _ERROR = 2, 3  # levels of the log
_ARENA, _DEFAULT_MEMORY = 1, 0
_PARALLEL = 1
_NOT_OPTIMISED = 0
_LARGE_BYTES = 1 << 16
_DTYPES: dict[int, np.dtype[Any]] = {
    number: np.dtype(name)
    for number, name in (
        (1, "float32"), (2, "uint8"), (3, "int8"), (4, "uint16"), (5, "int16"), (6, "int32"), (7, "int64"), (9, "bool"),
        (10, "float16"), (11, "float64"), (12, "uint32"), (13, "uint64"),
    )
}  # fmt: skip
"""numpy's type for each of ONNX's element types that both have."""
_ELEMENTS = {dtype: number for number, dtype in _DTYPES.items()}


class CInterface:
    """The functions, one environment with one arena, and calls that raise on errors."""

    def __init__(self) -> None:
        """Raises `MissingDependency` where the installed ONNX Runtime has no such library."""
        found = sorted((Path(ort.__file__).parent / "capi").glob("libonnxruntime.so.*"))
        if not found:
            raise MissingDependency("the installed ONNX Runtime has no library with its C interface")
        library = ctypes.CDLL(str(found[-1]))
        library.OrtGetApiBase.restype = POINTER(c_void_p)
        get_api = ctypes.CFUNCTYPE(POINTER(c_void_p), c_uint32)(library.OrtGetApiBase()[0])
        table = get_api(_API_VERSION)
        if not table:
            raise MissingDependency(f"the installed ONNX Runtime lacks version {_API_VERSION} of its C interface")
        self.addresses = {name: int(table[position]) for name, (position, _) in _FUNCTIONS.items()}
        """Of each function."""
        self._functions = {
            name: ctypes.CFUNCTYPE(_NO_STATUS.get(name, c_void_p), *arguments)(self.addresses[name])
            for name, (_, arguments) in _FUNCTIONS.items()
        }
        self._env = self.made("CreateEnv", _ERROR, b"gnnplace")
        self._memory = self.made("CreateCpuMemoryInfo", _ARENA, _DEFAULT_MEMORY)
        # One arena for all sessions, as the sessions of the Python loop have; see `devices`.
        self.call("CreateAndRegisterAllocator", self._env, self._memory, None)

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function.

        Raises:
            MeasurementFailed: it returns an error, which is the message.
        """
        if status := self._functions[name](*arguments):
            raise MeasurementFailed(self.message(status))

    def message(self, status: int) -> str:
        """The message of a status, which is released."""
        text = self._functions["GetErrorMessage"](status) or b""
        self._functions["ReleaseStatus"](status)
        return text.decode(errors="replace")

    def made(self, name: str, *arguments: Any) -> int:
        """The object that a function makes, by its address."""
        out = c_void_p()
        self.call(name, *arguments, byref(out))
        return int(out.value or 0)

    def release(self, kind: str, address: int) -> None:
        """Releases an object of a kind, such as `Value`."""
        if address:
            self._functions[f"Release{kind}"](address)

    def session(self, part: Part, device: RealDevice, weights: SharedWeights) -> CSession:
        """A session of a part on a device in main memory; a part of kernels runs as it is.

        ONNX Runtime's own kernels take their weights from `weights`.

        Raises:
            MeasurementFailed: ONNX Runtime refuses the model, or another provider does not run all its ops.
        """
        options, settings, is_own = self.made("CreateSessionOptions"), session_settings(device), device.family == "cpu"
        try:
            self.call("SetSessionLogSeverityLevel", options, log_level(device))
            self.call("SetIntraOpNumThreads", options, settings.intra_op_threads)
            self.call("SetInterOpNumThreads", options, settings.inter_op_threads)
            if settings.parallel:
                self.call("SetSessionExecutionMode", options, _PARALLEL)
            if part.optimised:
                self.call("SetSessionGraphOptimizationLevel", options, _NOT_OPTIMISED)
            entries = dict(settings.entries)
            if part.data_folder is not None:
                entries["session.model_external_initializers_file_folder_path"] = str(part.data_folder)
            if not is_own:
                self._append_provider(options, device)
                entries["session.record_ep_graph_assignment_info"] = "1"
            for key, value in entries.items():
                self.call("AddSessionConfigEntry", options, key.encode(), value.encode())
            for name, tensor in weights.tensors_of(part) if is_own else ():
                self.call("AddInitializer", options, name.encode(), tensor)
            model, packed, how = part.model, weights.packed, "WithPrepackedWeightsContainer"
            if isinstance(model, bytes):
                made = self.made(f"CreateSessionFromArray{how}", self._env, model, len(model), options, packed)
            else:
                made = self.made(f"CreateSession{how}", self._env, str(model).encode(), options, packed)
            session = CSession(self, made, weights)
            if not is_own:
                check_assignment(device, self._assigned(made))
            return session
        finally:
            self.release("SessionOptions", options)

    def _append_provider(self, options: int, device: RealDevice) -> None:
        stated = provider_options(device)
        keys, values = (
            (c_char_p * len(stated))(*[text.encode() for text in texts]) for texts in (stated, stated.values())
        )
        name = device.short_provider.encode()
        self.call("SessionOptionsAppendExecutionProvider", options, name, keys, values, len(stated))

    def _assigned(self, session: int) -> Iterator[tuple[str, str]]:
        """Provider and type of every op of a session that recorded them."""
        for subgraph in self._listed("Session_GetEpGraphAssignmentInfo", session):
            provider = self._text("EpAssignedSubgraph_GetEpName", subgraph)
            for node in self._listed("EpAssignedSubgraph_GetNodes", subgraph):
                yield provider, self._text("EpAssignedNode_GetOperatorType", node)

    def _listed(self, name: str, owner: int) -> list[int]:
        """Addresses of the objects of an owner."""
        first, size = POINTER(c_void_p)(), c_size_t()
        self.call(name, owner, byref(first), byref(size))
        return [int(first[index] or 0) for index in range(size.value)]

    def _text(self, name: str, owner: int) -> str:
        found = c_char_p()
        self.call(name, owner, byref(found))
        return (found.value or b"").decode()

    def holds_numbers(self, session: int) -> bool:
        """All inputs and outputs of a session are tensors of element types that numpy has."""
        for kind in ("Input", "Output"):
            count = c_size_t()
            self.call(f"SessionGet{kind}Count", session, byref(count))
            for index in range(count.value):
                info, tensor, element = self.made(f"SessionGet{kind}TypeInfo", session, index), c_void_p(), c_int()
                try:
                    self.call("CastTypeInfoToTensorInfo", info, byref(tensor))
                    if tensor.value:
                        self.call("GetTensorElementType", tensor, byref(element))
                finally:
                    self.release("TypeInfo", info)
                if element.value not in _DTYPES:
                    return False
        return True

    def tensor(self, array: np.ndarray[Any, Any]) -> int:
        """A tensor over the memory of a contiguous array, which must stay alive and unchanged as long as the tensor."""
        shape = (c_int64 * array.ndim)(*array.shape)
        element = _ELEMENTS[array.dtype]
        pointer = array.ctypes.data
        return self.made(
            "CreateTensorWithDataAsOrtValue", self._memory, pointer, array.nbytes, shape, array.ndim, element
        )

    def array(self, value: int) -> np.ndarray[Any, Any]:
        """A tensor as an array over its memory; the tensor is released with the array."""
        info, count, element, data = self.made("GetTensorTypeAndShape", value), c_size_t(), c_int(), c_void_p()
        try:
            self.call("GetDimensionsCount", info, byref(count))
            shape = (c_int64 * count.value)()
            self.call("GetDimensions", info, shape, count.value)
            self.call("GetTensorElementType", info, byref(element))
        finally:
            self.release("TensorTypeAndShapeInfo", info)
        self.call("GetTensorMutableData", value, byref(data))
        dtype = _DTYPES[element.value]
        num_bytes = dtype.itemsize * math.prod(tuple(shape))
        buffer = (ctypes.c_byte * num_bytes).from_address(data.value or 0) if num_bytes else (ctypes.c_byte * 0)()
        weakref.finalize(buffer, self.release, "Value", value).atexit = False
        return np.ndarray(tuple(shape), dtype, memoryview(buffer))


class CSession:
    """A session, released with this object."""

    def __init__(self, interface: CInterface, address: int, weights: SharedWeights) -> None:
        self.address, self._weights = address, weights
        weakref.finalize(self, interface.release, "Session", address).atexit = False


class SharedWeights:
    """Large weights in files, and the forms in which kernels pack them, once for all sessions that read them.

    Several parts read the same weights where a network repeats them, as in unrolled steps. With a copy per part, they fell out of
    the caches: an NMT model in 64 parts took 2.2 times the expected time.
    """

    def __init__(self, interface: CInterface) -> None:
        self._interface = interface
        self.packed = interface.made("CreatePrepackedWeightsContainer")
        """Address of the packed forms."""
        self._lock = Lock()
        self._tensors: dict[ExternalWeight, tuple[int, Any]] = {}
        weakref.finalize(self, interface.release, "PrepackedWeightsContainer", self.packed).atexit = False

    def tensors_of(self, part: Part) -> list[tuple[str, int]]:
        """Name and tensor of each large weight that a part has in a file."""
        found = []
        for weight in external_weights(part.model, part.data_folder):
            dtype = _DTYPES.get(weight.element_type)
            needed = 0 if dtype is None else dtype.itemsize * math.prod(weight.shape)
            if needed >= _LARGE_BYTES and needed == weight.num_bytes <= weight.file.stat().st_size - weight.offset:
                found.append((weight.name, self._tensor(weight)))
        return found

    def _tensor(self, weight: ExternalWeight) -> int:
        with self._lock:
            if weight not in self._tensors:
                dtype = _DTYPES[weight.element_type]
                array = np.memmap(weight.file, dtype, "r", weight.offset, weight.shape)
                tensor = self._interface.tensor(array)
                weakref.finalize(self, self._interface.release, "Value", tensor).atexit = False
                self._tensors[weight] = tensor, array
            return self._tensors[weight][0]


@cache
def c_interface() -> CInterface:
    """The interface of this process.

    Raises:
        MissingDependency: the installed ONNX Runtime has none.
    """
    return CInterface()


def is_plain(value: Any) -> bool:
    """The value is an array that a tensor can share: contiguous, of an element type that ONNX has too."""
    return isinstance(value, np.ndarray) and value.flags.c_contiguous and value.dtype in _ELEMENTS


def copied_array(address: int, element: int, shape: tuple[int, ...], most_bytes: int) -> np.ndarray[Any, Any] | None:
    """A copy of a tensor's data, given ONNX's number of its element type; None where it has more than `most_bytes`."""
    dtype = _DTYPES[element]
    num_bytes = dtype.itemsize * math.prod(shape)
    if num_bytes > most_bytes:
        return None
    # An array without elements needs a byte, too.
    return np.ndarray(shape, dtype, bytearray(ctypes.string_at(address, num_bytes) or b"\0"))


def name_pointers(names: Sequence[str], kept: list[Any]) -> list[int]:
    """Addresses of the names as C strings, which are added to `kept`, as they have to stay alive."""
    buffers = [ctypes.create_string_buffer(name.encode()) for name in names]
    kept += buffers
    return [ctypes.addressof(buffer) for buffer in buffers]

"""Inputs of a placed model, checked against the model's declarations, and `.npz` files of inputs and outputs."""

import math
import tokenize
import zipfile
import zlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import onnxruntime as ort
from numpy.lib import format as npy
from numpy.typing import NDArray

from gnnplace.errors import InvalidInput, shown
from gnnplace.files import new_file
from gnnplace.onnx_io.element_types import numpy_dtype
from gnnplace.onnx_io.part import ValueInfo
from gnnplace.running.values import as_numpy


def check_complete(required: Iterable[str], feed: Collection[str]) -> None:
    """Checks that the feed has every required input.

    Raises:
        InvalidInput: an input is missing.
    """
    for name in required:
        if name not in feed:
            raise InvalidInput(f"the model input {name!r} is missing; given are {', '.join(map(str, feed)) or 'none'}")


def checked_feed(declared: Mapping[str, ValueInfo], feed: Mapping[str, Any]) -> dict[str, Any]:
    """The feed with lists converted to arrays.

    Raises:
        InvalidInput: an input is missing, unknown, or of another dtype or rank.
    """
    if not isinstance(feed, Mapping):
        raise InvalidInput(f"the inputs are {shown(feed)}; expected a dictionary from names to arrays")
    checked: dict[str, Any] = {}
    if declared.keys() != feed.keys():
        check_complete((info.name for info in declared.values() if must_be_given(info)), feed)
        left_out = (info for name, info in declared.items() if name not in feed and not info.optional)
        checked |= {info.name: None for info in left_out}  # optionals without a value
    for name, value in feed.items():
        if name not in declared:
            raise InvalidInput(f"{name!r} is no input of the model; it has {', '.join(declared) or 'none'}")
        if value is not None or not declared[name].optional:
            checked[name] = _checked_value(declared[name], value)
    return checked


def must_be_given(info: ValueInfo) -> bool:
    """Whether a feed must have the input; as in ONNX Runtime, one with a default or of an optional type may be left out."""
    return not info.optional and not info.type.startswith("optional(")


def takes_as_it_is(feed: Any) -> bool:
    """Whether ONNX Runtime reads the feed right, or refuses it; it ignores the byte order of arrays."""
    if not isinstance(feed, Mapping):
        return False
    return all(not isinstance(value, np.ndarray) or value.dtype.isnative for value in feed.values())


def _checked_value(info: ValueInfo, value: Any) -> Any:
    """The value as an array of the right dtype and shape; ONNX Runtime checks sequences and optionals."""
    if not info.type.startswith("tensor("):
        return value
    element = info.type[len("tensor(") : -1]
    expected = numpy_dtype(element)
    if type(value) is np.ndarray and value.dtype is expected and value.shape == info.shape:
        return value  # so that the usual case takes no time
    if isinstance(value, ort.OrtValue):
        value = as_numpy(value._get_c_value())
    if not isinstance(value, np.ndarray):
        try:
            if value is None or (isinstance(value, str | bytes) and element != "string"):
                raise ValueError  # numpy would read them as NaN and as a number
            value = np.asarray(value, dtype=expected)
        except (TypeError, ValueError, OverflowError):
            raise InvalidInput(
                f"the model input {info.name!r} is {shown(value)}; expected an array of {expected.name}"
            ) from None
    if value.dtype.kind not in "OUS" if element == "string" else value.dtype.name != expected.name:
        raise InvalidInput(f"the model input {info.name!r} is of dtype {value.dtype.name}; expected {expected.name}")
    if not value.dtype.isnative:
        value = value.astype(expected)
    if info.shape and value.ndim != len(info.shape):  # ONNX Runtime takes any shape where a scalar is declared
        raise InvalidInput(
            f"the model input {info.name!r} has {value.ndim} dimensions {list(value.shape)}; expected {list(info.shape)}"
        )
    for axis, (found, declared) in enumerate(zip(value.shape, info.shape, strict=False)):
        if isinstance(declared, int) and 0 <= declared != found:  # some exporters write -1 for any size
            raise InvalidInput(
                f"the model input {info.name!r} has size {found} in dimension {axis}; expected {list(info.shape)}"
            )
    return value


_BROKEN_ARCHIVE = (zipfile.BadZipFile, zlib.error, tokenize.TokenError, SyntaxError)
"""Errors of the libraries for a damaged archive or header, beside the usual ones."""
_SMALL_BYTES = 2**26
_MAX_RATIO = 200
"""Largest ratio of unpacked to packed bytes beyond `_SMALL_BYTES`; arrays of real data are far below it."""
_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an `.npz` file by name.

    Raises:
        InvalidInput: the file is missing, is no `.npz` file, or holds objects instead of numbers and texts.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return {info.filename.removesuffix(".npy"): _array(archive, info) for info in archive.infolist()}
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read ({error.strerror or error}); expected an .npz file") from None
    except (ValueError, LookupError, TypeError, EOFError, RuntimeError, *_BROKEN_ARCHIVE) as error:
        raise InvalidInput(f"{path}: is no .npz file of plain arrays ({error})") from None


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Writes arrays under any names; arrays of text objects become arrays of text."""
    with new_file(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, value in arrays.items():
            array = np.asarray(value)
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array(member, array.astype(str) if array.dtype.hasobject else array, allow_pickle=False)


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    """One array, read after its header and its number of bytes have been compared."""
    if info.file_size > max(_SMALL_BYTES, _MAX_RATIO * info.compress_size):
        raise ValueError(f"{info.filename!r} unpacks to {info.file_size} bytes from {info.compress_size}")
    with archive.open(info) as member:
        expected = _bytes_by_header(member)
        if expected != info.file_size:
            raise ValueError(f"{info.filename!r} has {info.file_size} bytes; its header asks for {expected}")
    with archive.open(info) as member:
        return npy.read_array(member, allow_pickle=False)


def _bytes_by_header(member: IO[bytes]) -> int:
    version = npy.read_magic(member)
    if version not in _READERS:
        raise ValueError(f"version {version} of the array format is not known")
    shape, _, dtype = _READERS[version](member)
    if dtype.hasobject:
        raise ValueError("an array holds objects, which are never unpickled")
    if any(size < 0 for size in shape):
        raise ValueError(f"the shape is {shape}")
    return member.tell() + dtype.itemsize * math.prod(shape)

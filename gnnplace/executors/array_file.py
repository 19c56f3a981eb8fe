"""Inputs and outputs of a model as `.npz` files: plain arrays, nothing that is pickled or unpickled."""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from gnnplace.errors import InvalidInput
from gnnplace.files import new_file

__all__ = ["read_arrays", "write_arrays"]

_NO_ARRAYS = (zipfile.BadZipFile, zlib.error, tokenize.TokenError, SyntaxError)
"""What the libraries raise for a damaged archive or header besides."""
_SMALL_BYTES = 2**26
_MOST_RATIO = 200
"""Of unpacked to packed bytes, beyond `_SMALL_BYTES`; arrays that compute something are far below it."""
_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an `.npz` file by name.

    Raises:
        InvalidInput: it is missing, is no such file, or holds something else than arrays of numbers and texts.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return {info.filename.removesuffix(".npy"): _array(archive, info) for info in archive.infolist()}
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read ({error.strerror or error}); expected an .npz file") from None
    except (ValueError, LookupError, TypeError, EOFError, RuntimeError, *_NO_ARRAYS) as error:
        raise InvalidInput(f"{path}: is no .npz file of plain arrays ({error})") from None


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Writes arrays by name, whatever the names are; texts in arrays of objects become arrays of texts."""
    with new_file(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, value in arrays.items():
            array = np.asarray(value)
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array(member, array.astype(str) if array.dtype.hasobject else array, allow_pickle=False)


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    """One array, once its header and its bytes are seen to agree."""
    if info.file_size > max(_SMALL_BYTES, _MOST_RATIO * info.compress_size):
        raise ValueError(f"{info.filename!r} unpacks to {info.file_size} bytes from {info.compress_size}")
    with archive.open(info) as member:
        expected = _stated_bytes(member)
        if expected != info.file_size:
            raise ValueError(f"{info.filename!r} has {info.file_size} bytes; its header asks for {expected}")
    with archive.open(info) as member:
        return npy.read_array(member, allow_pickle=False)


def _stated_bytes(member: IO[bytes]) -> int:
    version = npy.read_magic(member)
    if version not in _READERS:
        raise ValueError(f"version {version} of the array format is not known")
    shape, _, dtype = _READERS[version](member)
    if dtype.hasobject:
        raise ValueError("an array holds objects, which are never unpickled")
    if any(size < 0 for size in shape):
        raise ValueError(f"the shape is {shape}")
    size = dtype.itemsize
    for length in shape:
        size *= length
    return member.tell() + size

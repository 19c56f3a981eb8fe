"""The values of requests under way: inputs as tensors of ONNX Runtime, outputs as arrays of numpy."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numba import njit

from gnnplace.arrays import IntArray
from gnnplace.errors import MeasurementFailed
from gnnplace.running.compiled.book import (
    DATA,
    ELEMENT,
    INFO,
    RANK,
    RELEASE,
    RELEASE_INFO,
    RELEASE_STATUS,
    SIZES,
    Shared,
    opened,
)
from gnnplace.running.compiled.c_api import CInterface, copied_array, is_plain
from gnnplace.running.compiled.primitives import call, compile_for, load, store

_COPIED_BYTES = 1 << 14  # smaller inputs and outputs are copied, which takes less time than a tensor of their own
_MOST_SIZES = 12  # dimensions of a value that `_describe` can tell
_ADDRESS_AT, _ELEMENT_AT, _RANK_AT, _SIZES_AT = 0, 1, 2, 3  # columns of what it writes
_INFO_AT = _SIZES_AT + _MOST_SIZES
_DESCRIPTION = _INFO_AT + 1  # number of these columns


class SlotValues:
    """The values of the slots of a placed model's threads."""

    def __init__(
        self,
        api: CInterface,
        value: Mapping[str, int],
        produced: frozenset[str],
        shared: Shared,
        book: IntArray,
        slots: int,
    ) -> None:
        """`value` are the numbers of all values of the parts by name, `produced` the names of those that parts make."""
        self._api, self._value, self._produced, self._shared, self._book = api, value, produced, shared, book
        self._places: list[dict[str, _Place]] = [{} for _ in range(slots)]
        self._numbers_of: dict[frozenset[str], tuple[list[str], IntArray]] = {}
        compile_for(_describe, book, 0, shared.values, _descriptions(0))
        compile_for(_clear, book, 0)

    def put(self, slot: int, arrays: Mapping[str, np.ndarray[Any, Any]], tensors: list[int]) -> None:
        """Writes the inputs of a request; `tensors` receives those that have to be released with it.

        Raises:
            MeasurementFailed: an array has an element type that no part takes.
        """
        for name, array in arrays.items():
            if not is_plain(array):
                raise MeasurementFailed(f"input {name!r} has the element type {array.dtype}, which no part takes")
            self._shared.values[slot * len(self._value) + self._value[name]] = self._tensor(slot, name, array, tensors)

    def outputs(self, slot: int, wanted: frozenset[str]) -> dict[str, np.ndarray[Any, Any]]:
        """Values of an ended request: copies of small ones, and the memory of the others."""
        if wanted not in self._numbers_of:
            names = sorted(wanted & self._produced)
            self._numbers_of[wanted] = names, np.array([self._value[name] for name in names], dtype=np.int64)
        names, numbers = self._numbers_of[wanted]
        found = _descriptions(len(names))
        _describe(self._book, slot, numbers, found)
        arrays = {}
        for name, row in zip(names, found.tolist(), strict=True):
            rank, array = row[_RANK_AT], None
            if rank >= 0:
                shape = tuple(row[_SIZES_AT : _SIZES_AT + rank])
                array = copied_array(row[_ADDRESS_AT], row[_ELEMENT_AT], shape, _COPIED_BYTES)
            if array is None:
                at = slot * len(self._value) + self._value[name]
                array = self._api.array(int(self._shared.values[at]))
                self._shared.values[at] = 0
            arrays[name] = array
        return arrays

    def clear(self, slot: int, tensors: Iterable[int]) -> None:
        """Removes all values of an ended request; `tensors` are those that `put` gave."""
        _clear(self._book, slot)
        for tensor in tensors:
            self._api.release("Value", tensor)

    def _tensor(self, slot: int, name: str, array: np.ndarray[Any, Any], tensors: list[int]) -> int:
        """A tensor of an input; small ones are copied into that of an earlier request."""
        place = self._places[slot].get(name)
        if place is None or not place.fits(array):
            if array.nbytes > _COPIED_BYTES:
                tensors.append(self._api.tensor(array))
                return tensors[-1]
            place = self._places[slot][name] = _Place(self._api, array)
        place.array[...] = array
        return place.tensor


class _Place:
    """The memory and tensor of a small input of a slot, which it keeps for later requests."""

    def __init__(self, api: CInterface, like: np.ndarray[Any, Any]) -> None:
        self.array = np.empty(like.shape, like.dtype)
        self.tensor = api.tensor(self.array)
        weakref.finalize(self, api.release, "Value", self.tensor).atexit = False

    def fits(self, array: np.ndarray[Any, Any]) -> bool:
        """The array has this shape and element type."""
        return bool(array.shape == self.array.shape and array.dtype == self.array.dtype)


def _descriptions(count: int) -> IntArray:
    return np.empty((count, _DESCRIPTION), dtype=np.int64)


@njit(cache=True, nogil=True)
def _describe(book: IntArray, slot: int, values: IntArray, found: IntArray) -> None:
    """Writes what `outputs` needs of values `[W]` of an ended request into `found` `[W, _DESCRIPTION]`.

    The rank is -1 where a value has more than `_MOST_SIZES` dimensions or ONNX Runtime gives an error.
    """
    program, shared = opened(book)
    functions = program.functions
    for row in range(len(values)):
        value, out = load(shared.values, slot * len(program.uses) + values[row]), found[row].ctypes.data
        found[row] = 0
        status = call(functions[INFO], (value, out + 8 * _INFO_AT))
        if status == 0:
            info = found[row, _INFO_AT]
            call(functions[ELEMENT], (info, out + 8 * _ELEMENT_AT))
            call(functions[RANK], (info, out + 8 * _RANK_AT))
            if found[row, _RANK_AT] <= _MOST_SIZES:
                call(functions[SIZES], (info, out + 8 * _SIZES_AT, found[row, _RANK_AT]))
            else:
                found[row, _RANK_AT] = -1
            call(functions[RELEASE_INFO], (info,))
            status = call(functions[DATA], (value, out + 8 * _ADDRESS_AT))
        if status != 0:
            call(functions[RELEASE_STATUS], (status,))
            found[row, _RANK_AT] = -1


@njit(cache=True, nogil=True)
def _clear(book: IntArray, slot: int) -> None:
    """Removes all values of an ended request and releases those that its parts made."""
    program, shared = opened(book)
    first = slot * len(program.uses)
    for value in range(len(program.uses)):
        address = load(shared.values, first + value)
        store(shared.values, first + value, 0)
        if address != 0 and program.given[value] == 0:
            call(program.functions[RELEASE], (address,))

"""What is known of one tensor when the model is read: dtype, shape, size, and the value when it is a small constant."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
from numpy.typing import NDArray

from gnnplace.errors import UnsupportedModel, did_you_mean

__all__ = ["STRING_BYTES", "Dimensions", "TensorInfo", "choose_dimensions"]


STRING_BYTES = 16
"""Bytes taken for one element of a string tensor."""


@dataclass(frozen=True, slots=True, eq=False)
class TensorInfo:
    """A tensor at concrete dimensions.

    >>> TensorInfo(ir.DataType.INT4, (3, 3)).bytes
    5
    """

    dtype: ir.DataType | None
    """None for what is no tensor: a sequence, an optional, a map."""
    shape: tuple[int, ...]
    value: NDArray[Any] | None = None
    """The elements, when they are few and the same at every run."""

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def size_along(self, axis: int) -> int:
        """Elements along an axis; 1 where there is no such axis, as for a shape that had to be guessed."""
        return self.shape[axis] if -len(self.shape) <= axis < len(self.shape) else 1

    @property
    def bytes(self) -> int:
        """Bytes of the elements, packed; 0 for what is no tensor."""
        if self.dtype is None:
            return 0
        if self.dtype == ir.DataType.STRING:
            return STRING_BYTES * self.size
        return math.ceil(self.size * self.dtype.itemsize)

    @property
    def dtype_name(self) -> str:
        """The dtype as numpy and ml_dtypes write it: `float32`, `bfloat16`, `int8`, ...; `string`; `unknown`."""
        if self.dtype is None:
            return "unknown"
        return "string" if self.dtype == ir.DataType.STRING else self.dtype.numpy().name


_LONGEST_EXPRESSION = 200
_NO_EXPRESSION = (ValueError, TypeError, ArithmeticError, RecursionError)
"""What the parser of expressions raises for a text that is none."""


@dataclass(frozen=True)
class Dimensions:
    """The dimensions of a model's inputs as numbers."""

    values: Mapping[str, int]
    """By name; an axis without a name is called `INPUT.AXIS`, axes counted from 0."""
    input_shapes: Mapping[ir.Value, tuple[int, ...]]
    warnings: tuple[str, ...]


def choose_dimensions(inputs: Sequence[ir.Value], given: Mapping[str, int], where: str) -> Dimensions:
    """The given numbers, and 1 for every dimension that is not given, with a warning each.

    A dimension written as an expression of others (`past + sequence`) follows from them unless it is given itself.

    Raises:
        UnsupportedModel: a given name that no input has, or a number below 0; the message begins with `where`.
    """
    names = {value: _axis_names(value) for value in inputs}
    symbols = list(dict.fromkeys(name for row in names.values() for name in row if isinstance(name, str)))
    for name, number in given.items():
        if name not in symbols:
            raise UnsupportedModel(f"{where}: no input has a dimension {name!r}; {_known(name, symbols)}")
        if number < 0:
            raise UnsupportedModel(f"{where}: dimension {name!r} is given as {number}; expected at least 0")
    expressions = {name for name in symbols if name not in given and _is_expression(name, symbols)}
    values = {name: given.get(name, 1) for name in symbols if name not in expressions}
    warnings = [
        f"dimension {name!r} is not given; 1 is taken (set it with --dim {name}=N)"
        for name in values
        if name not in given
    ]
    for name in expressions:
        values[name] = _evaluated(name, values)
    for value in inputs:
        if value.shape is None and isinstance(value.type, ir.TensorType):
            warnings.append(f"input {value.name!r} has no shape; a scalar is taken")
    shapes = {
        value: tuple(values[axis] if isinstance(axis, str) else axis for axis in row) for value, row in names.items()
    }
    return Dimensions({name: values[name] for name in symbols}, shapes, tuple(warnings))


def _axis_names(value: ir.Value) -> list[int | str]:
    """Each axis of an input: its size, or its name; none for what is no tensor."""
    axes: list[int | str] = []
    if not isinstance(value.type, ir.TensorType):
        return axes
    for position, axis in enumerate(value.shape or ()):
        size = axis if isinstance(axis, int) else axis.value
        # Some exporters write -1 for "any".
        unnamed = size is None or size == "" or (isinstance(size, int) and size < 0)
        axes.append(f"{value.name}.{position}" if unnamed or size is None else size)
    return axes


def _is_expression(name: str, symbols: Sequence[str]) -> bool:
    if name.isidentifier() or not _is_harmless(name):
        return False
    try:
        parts = ir.SymbolicDim(name).free_symbols()
    except _NO_EXPRESSION:
        return False
    return name not in parts and all(part in symbols for part in parts)


def _evaluated(expression: str, values: Mapping[str, int]) -> int:
    """Its size; 1 where it is no whole number."""
    try:
        size = ir.SymbolicDim(expression).evaluate(values)
    except _NO_EXPRESSION:
        return 1
    return max(size, 0) if isinstance(size, int) else 1


def _is_harmless(expression: str) -> bool:
    """Computing it takes no time: it is short, its numbers are small, and nothing is raised to a power of a power."""
    return (
        len(expression) <= _LONGEST_EXPRESSION
        and re.search(r"[0-9]{10}", expression) is None
        and "**" not in re.sub(r"\*\*\s*2\b", "", expression, count=1)
    )


def _known(name: str, symbols: Sequence[str]) -> str:
    if not symbols:
        return "all of them are fixed, so leave it out"
    return did_you_mean(name, symbols, f"there are {', '.join(map(repr, symbols))}")

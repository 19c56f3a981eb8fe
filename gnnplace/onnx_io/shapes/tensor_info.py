"""One tensor at concrete dimensions, and the sizes of a model's symbolic dimensions."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
from numpy.typing import NDArray

from gnnplace.errors import UnsupportedModel, did_you_mean

MAX_SIZE = 2**40
"""Largest size of a symbolic dimension."""
_STRING_BYTES = 16
"""Assumed bytes of one string."""
_LONGEST_EXPRESSION = 200
_NO_EXPRESSION = (ValueError, TypeError, ArithmeticError, RecursionError)
"""Errors of the parser of expressions."""


@dataclass(frozen=True, slots=True, eq=False)
class TensorInfo:
    """A tensor at concrete dimensions."""

    dtype: ir.DataType | None
    """None for a sequence, an optional or a map."""
    shape: tuple[int, ...]
    value: NDArray[Any] | None = None
    """The elements, if they are few and equal in every run."""

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def size_along(self, axis: int) -> int:
        """Number of elements along an axis; 1 if there is no such axis, as in a guessed shape."""
        return self.shape[axis] if -len(self.shape) <= axis < len(self.shape) else 1

    @property
    def bytes(self) -> int:
        """Bytes of the packed elements; 0 if this is not a tensor."""
        if self.dtype is None:
            return 0
        return math.ceil(self.size * (_STRING_BYTES if self.dtype == ir.DataType.STRING else self.dtype.itemsize))

    @property
    def dtype_name(self) -> str:
        """The dtype as numpy and ml_dtypes write it, such as `bfloat16`; `string`; `unknown`."""
        if self.dtype is None:
            return "unknown"
        return "string" if self.dtype == ir.DataType.STRING else self.dtype.numpy().name


@dataclass(frozen=True)
class Dimensions:
    """The dimensions of a model's inputs as numbers."""

    values: Mapping[str, int]
    """Size by name; an axis without a name is called `INPUT.AXIS`, with axes counted from 0."""
    input_shapes: Mapping[ir.Value, tuple[int, ...]]
    assumed: tuple[str, ...]
    """Dimensions of which no size is given."""
    warnings: tuple[str, ...]


def assumption(name: str) -> str:
    """The warning about a dimension of which no size is given."""
    return f"dimension {name!r} is not given; 1 is taken (set it with --dim {name}=N)"


def choose_dimensions(inputs: Sequence[ir.Value], stated: Mapping[str, int], where: str) -> Dimensions:
    """Takes the stated sizes, and 1 with a warning for every other dimension.

    A dimension that is an expression of others (`past + sequence`) follows from them unless it is stated itself.

    Raises:
        UnsupportedModel: no input has a stated dimension, or a size is negative or too large; the message begins with `where`.
    """
    names = {value: axis_names(value) for value in inputs}
    symbols = list(dict.fromkeys(name for row in names.values() for name in row if isinstance(name, str)))
    for name, number in stated.items():
        if name not in symbols:
            known = f"there are {', '.join(map(repr, symbols))}"
            hint = did_you_mean(name, symbols, known) if symbols else "all of them are fixed, so leave it out"
            raise UnsupportedModel(f"{where}: no input has a dimension {name!r}; {hint}")
        if number < 0:
            raise UnsupportedModel(f"{where}: dimension {name!r} is given as {number}; expected at least 0")
        if number > MAX_SIZE:
            raise UnsupportedModel(f"{where}: dimension {name!r} is given as {number}; expected at most {MAX_SIZE:,}")
    expressions = {name for name in symbols if name not in stated and _is_expression(name, symbols)}
    values = {name: stated.get(name, 1) for name in symbols if name not in expressions}
    assumed = tuple(name for name in values if name not in stated)
    warnings = list(map(assumption, assumed))
    values.update({name: _evaluated(name, values) for name in expressions})
    for value in inputs:
        if value.shape is None and isinstance(value.type, ir.TensorType):
            warnings.append(f"input {value.name!r} has no shape; a scalar is taken")
    shapes = {
        value: tuple(values[axis] if isinstance(axis, str) else axis for axis in row) for value, row in names.items()
    }
    return Dimensions({name: values[name] for name in symbols}, shapes, assumed, tuple(warnings))


def axis_names(value: ir.Value) -> list[int | str]:
    """The size of each axis of an input, or the name of its dimension; empty if it is not a tensor."""
    axes: list[int | str] = []
    for position, axis in enumerate(value.shape or () if isinstance(value.type, ir.TensorType) else ()):
        size = axis if isinstance(axis, int) else axis.value
        # Some exporters write -1 for "any".
        unnamed = size is None or size == "" or (isinstance(size, int) and size < 0)
        axes.append(f"{value.name}.{position}" if unnamed or size is None else size)
    return axes


def _is_expression(name: str, symbols: Sequence[str]) -> bool:
    # Evaluation is quick only for a short text with small numbers, whose only power is one square.
    is_large = len(name) > _LONGEST_EXPRESSION or re.search(r"[0-9]{10}", name)
    if name.isidentifier() or is_large or "**" in re.sub(r"\*\*\s*2\b", "", name, count=1):
        return False
    try:
        parts = ir.SymbolicDim(name).free_symbols()
    except _NO_EXPRESSION:
        return False
    return name not in parts and all(part in symbols for part in parts)


def _evaluated(expression: str, values: Mapping[str, int]) -> int:
    """The value of an expression, at least 0; 1 if it is not a whole number."""
    try:
        size = ir.SymbolicDim(expression).evaluate(values)
    except _NO_EXPRESSION:
        return 1
    return max(size, 0) if isinstance(size, int) else 1

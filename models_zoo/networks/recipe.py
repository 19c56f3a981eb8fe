"""Recipes and their products: a torch module, an ONNX model, or an op graph."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gnnplace.errors import UnsupportedModel, did_you_mean
from gnnplace.graph.op_graph import OpGraph

Optimizer = Literal["sgd", "adam"]
Variant = Literal["full", "small"]


@dataclass(frozen=True)
class StageRule:
    """The human placement of a family: which stage each weight belongs to; an expert gives stages to devices in order.

    An op belongs to the stage of the weight that it reads, and else where its inputs come from.
    """

    patterns: tuple[tuple[str, int | str], ...] = ()
    r"""Regular expression for the start of a weight's name, and its stage: a number, the group of the expression that
    holds it (`r"\1"`), or "last", the last stage of all others. The first that matches counts; a weight without a match
    has no stage of its own."""


@dataclass(frozen=True, eq=False)
class TorchNetwork:
    """A torch module with one batch."""

    module: nn.Module
    inputs: Mapping[str, Tensor]
    """Inputs by argument name of `forward`, in its order; the ONNX inputs get these names."""
    outputs: tuple[str, ...] = ("output",)
    """Names of what `forward` returns: one tensor, or a flat tuple."""
    targets: Mapping[str, Tensor] = field(default_factory=dict)
    """Targets of the loss."""
    loss: Callable[..., Tensor] | None = None
    """Loss of the outputs of `forward` and the targets; None without a training step."""
    optimizer: Optimizer = "sgd"
    state: Mapping[str, str] = field(default_factory=dict)
    """Inputs that live on between runs, such as a key-value cache, and the output that replaces each."""


@dataclass(frozen=True, eq=False)
class OnnxNetwork:
    """A model that is written in ONNX, since what it shows is ONNX's own: control flow, quantisation, old opsets."""

    model: ir.Model
    inputs: Mapping[str, NDArray[Any]]
    reference: Callable[[Mapping[str, NDArray[Any]]], list[NDArray[Any]]]
    """The same computation in torch: outputs in the model's order."""
    unordered: Callable[[Sequence[NDArray[Any]]], list[NDArray[Any]]] | None = None
    """Sorts outputs whose order depends on rounding, so that they can be compared."""


Workload = TorchNetwork | OnnxNetwork | OpGraph


@dataclass(frozen=True)
class Recipe:
    """The recipe of one workload."""

    name: str
    summary: str
    make: Callable[[Any], Workload]
    """Builds the network from settings; the caller has seeded torch and numpy."""
    settings: Any
    """A frozen dataclass of numbers and texts: the size that is published."""
    small: Any
    """The same dataclass at a size for tests."""
    source: str
    """Paper and section, or the library's configuration."""
    trains: bool = False
    stages: StageRule = StageRule()

    def at(self, variant: Variant = "full", changes: Mapping[str, str] | None = None) -> Any:
        """The settings of a variant with some of them changed, as `--set NAME=VALUE` states them.

        Raises:
            UnsupportedModel: there is no such setting, or the value is no value of its type.
        """
        settings = self.small if variant == "small" else self.settings
        return dataclasses.replace(settings, **{key: self._value(key, text) for key, text in (changes or {}).items()})

    def _value(self, key: str, text: str) -> Any:
        now = vars(self.settings)
        if key not in now:
            hint = did_you_mean(key, now, f"known are {', '.join(now)}")
            raise UnsupportedModel(f"zoo:{self.name}: has no setting {key!r}; {hint}")
        kind = type(now[key])
        try:
            value = kind(text)
        except ValueError:
            raise UnsupportedModel(
                f"zoo:{self.name}: setting {key} is {text!r}; expected {kind.__name__}, such as {now[key]!r}"
            ) from None
        if isinstance(value, int) and value <= 0 < now[key]:  # a count; fractions are checked where they are used
            raise UnsupportedModel(f"zoo:{self.name}: setting {key} is {text}; expected more than 0")
        return value

    def build(self, settings: Any, seed: int = 0) -> Workload:
        """Builds the workload; equal seeds give equal weights."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            state = np.random.get_state()  # noqa: NPY002 - libraries that draw from numpy's global generator
            np.random.seed(seed)  # noqa: NPY002
            try:
                return self.make(settings)
            finally:
                np.random.set_state(state)  # noqa: NPY002

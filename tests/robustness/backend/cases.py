"""Cases of ONNX's backend test suite in the installed `onnx` package: models, inputs, expected outputs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from gnnplace.onnx_io.model import GROUP_KEY

FAMILIES = ("node", "simple", "pytorch-converted", "pytorch-operator")
"""Kinds of cases in ONNX's terms; the package lacks the models of the kind `real`."""


@dataclass(frozen=True, eq=False)
class BackendCase:
    """A model with inputs and expected outputs."""

    name: str
    family: str
    model: bytes
    data: tuple[tuple[list[Any], list[Any]], ...]
    """Inputs and outputs in the model's order: arrays, lists for sequences, None for an empty optional."""
    rtol: float
    atol: float
    travels: bool = False
    """Whether an Identity, on a device of its own, follows every input and precedes every output."""

    @property
    def proto(self) -> onnx.ModelProto:
        return onnx.ModelProto.FromString(self.model)

    @property
    def op_types(self) -> tuple[str, ...]:
        """Op types of the main graph's nodes in order; `DOMAIN::TYPE` for other domains than ONNX's own."""
        nodes = self.proto.graph.node
        return tuple(f"{node.domain}::{node.op_type}" if node.domain else node.op_type for node in nodes)

    def travelling(self) -> BackendCase:
        """The same case in two colocation groups, so that all inputs and outputs travel between devices."""
        model = self.proto
        graph = model.graph
        weights = {tensor.name for tensor in graph.initializer}
        arrived = {value.name: f"{value.name}.arrived" for value in graph.input if value.name not in weights}
        left = {value.name: f"{value.name}.left" for value in graph.output}
        before = [onnx.helper.make_node("Identity", [name], [new]) for name, new in arrived.items()]
        after = [onnx.helper.make_node("Identity", [arrived.get(name, name)], [new]) for name, new in left.items()]
        inside = list(graph.node)
        for node in inside:
            node.input[:] = [arrived.get(name, name) for name in node.input]
        for group, nodes in (("outside", [*before, *after]), ("inside", inside)):
            for node in nodes:
                node.metadata_props.add(key=GROUP_KEY, value=group)
        for value in graph.output:
            value.name = left[value.name]
        del graph.node[:]
        graph.node.extend([*before, *inside, *after])
        return replace(self, name=f"{self.name}, travelling", model=model.SerializeToString(), travels=True)

    def check(self, expected: Sequence[Any], found: Sequence[Any]) -> None:
        """Compares outputs with ONNX's own comparison, and lengths of sequences.

        Raises:
            AssertionError: an output differs in kind, dtype, shape, or value beyond the tolerances of the case.
        """
        from onnx.backend.test.runner import Runner

        for wanted, array in zip(_tensors(expected), _tensors(found), strict=True):
            if wanted is None or array is None:
                assert wanted is array, f"found {array}; expected {wanted}"
            else:
                Runner.assert_similar_outputs([wanted], [array], self.rtol, self.atol)


def backend_cases(family: str) -> tuple[BackendCase, ...]:
    """All cases of a family, sorted by name; those of nodes are computed here, which takes seconds."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # expected outputs with infinities are meant
        found = load_model_tests(kind=family)
    cases = []
    for case in found:
        if case.model is None:
            assert case.model_dir is not None, f"{case.name} has to be downloaded"
            folder = Path(case.model_dir)
            model = onnx.load(folder / "model.onnx")
            sides = (("input", model.graph.input), ("output", model.graph.output))
            folders = sorted(folder.glob("test_data_set*"))
            data = [tuple(list(_values(stored, *side)) for side in sides) for stored in folders]
        else:
            model = case.model
            data = [([*map(_array, inputs)], [*map(_array, outputs)]) for inputs, outputs in case.data_sets or ()]
        cases.append(BackendCase(case.name, family, model.SerializeToString(), tuple(data), case.rtol, case.atol))
    return tuple(sorted(cases, key=lambda case: case.name))


def _values(folder: Path, side: str, stated: Sequence[onnx.ValueInfoProto]) -> Iterator[Any]:
    """Values in `SIDE_0.pb`, `SIDE_1.pb`, ..., with the model's types."""
    for number in range(len(list(folder.glob(f"{side}_*.pb")))):
        content = (folder / f"{side}_{number}.pb").read_bytes()
        if stated[number].type.HasField("sequence_type"):
            yield onnx.numpy_helper.to_list(onnx.SequenceProto.FromString(content))
        elif stated[number].type.HasField("optional_type"):
            yield onnx.numpy_helper.to_optional(onnx.OptionalProto.FromString(content))
        else:
            yield onnx.numpy_helper.to_array(onnx.TensorProto.FromString(content))


def _array(value: Any) -> Any:
    """A value for a runtime, with arrays for tensors and single numbers."""
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def _tensors(values: Sequence[Any]) -> list[Any]:
    """Flattened values with the length before each sequence, as ONNX's comparison ignores lengths."""
    found: list[Any] = []
    for value in values:
        if isinstance(value, list | tuple):
            found += [np.array(len(value)), *_tensors(value)]
        else:
            found.append(value)
    return found

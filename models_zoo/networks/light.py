"""Nine real convolutional networks that come with the `onnx` package, with weights that compute something.

The package ships them without weights: `ConstantOfShape` nodes fill every large tensor with one value. Here those
nodes become initialisers with seeded random values, so that the graph holds only real work and its outputs depend on
its inputs.

    python -m models_zoo.networks.light inception_v2 --out build/light_inception_v2.onnx
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.backend.test import data as onnx_test_data

from gnnplace.errors import GnnplaceError, UnsupportedModel
from gnnplace.files import new_file
from gnnplace.units import format_bytes
from models_zoo.networks.shipped import LIGHT_MODELS

IR_VERSION = 8  # from IR 4 on, an initialiser is a constant unless it is also listed as an input
CLASSIFIER_SCALE = 0.2
VIEWS = ("Reshape", "Unsqueeze")

Role = Literal["weight", "scale", "shift", "variance"]
ROLES: dict[tuple[str, int], Role] = {
    ("Conv", 1): "weight", ("Conv", 2): "shift",
    ("Gemm", 1): "weight", ("Gemm", 2): "shift",
    ("BatchNormalization", 1): "scale", ("BatchNormalization", 2): "shift",
    ("BatchNormalization", 3): "shift", ("BatchNormalization", 4): "variance",
    ("Mul", 1): "scale", ("Add", 1): "shift",
}  # fmt: skip


class Use(NamedTuple):
    """The op that a weight belongs to, seen through views, and what it does there."""

    node: onnx.NodeProto
    role: Role


def write_light_model(name: str, path: Path, seed: int = 0) -> None:
    """Writes a light model with random weights to `path`; input and output shapes stay as shipped.

    Weights follow He et al. (2015): variance 2 / fan-in. Two departures keep the softmax from being one-hot: a branch
    that is added to an identity shortcut is scaled by 1 / sqrt(number of shortcuts), else the values of a residual
    network grow with every block; and the last layer is scaled by `CLASSIFIER_SCALE`.

    Raises:
        UnsupportedModel: `name` is none of `LIGHT_MODELS`, or the installed `onnx` package does not hold it.
    """
    model = _shipped(name)
    _fold_fills(model.graph)
    rng = np.random.default_rng(seed)
    uses, factors = _uses(model.graph), {**_branch_factors(model.graph), **_classifier_factor(model.graph)}
    for tensor in model.graph.initializer:
        if tensor.name in uses:
            use = uses[tensor.name]
            values = _random_values(tuple(tensor.dims), use, rng) * factors.get((use.node.output[0], use.role), 1.0)
            tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float32), tensor.name))
    model.ir_version = IR_VERSION
    with new_file(path) as temporary:
        onnx.save(model, temporary)


def _shipped(name: str) -> onnx.ModelProto:
    if name not in LIGHT_MODELS:
        raise UnsupportedModel(f"light model {name!r} is unknown; choose one of {', '.join(LIGHT_MODELS)}")
    file = Path(next(iter(onnx_test_data.__path__))) / "light" / f"light_{name}.onnx"
    if not file.is_file():
        raise UnsupportedModel(f"{file}: is missing; install an onnx package that ships its light test models")
    return onnx.load(file)


def _fold_fills(graph: onnx.GraphProto) -> None:
    """Every `ConstantOfShape` becomes an initialiser, and initialisers are no longer inputs."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    fills = [node for node in graph.node if node.op_type == "ConstantOfShape"]
    for node in fills:
        value = numpy_helper.to_array(node.attribute[0].t)
        shape = numpy_helper.to_array(constants[node.input[0]])
        graph.initializer.append(numpy_helper.from_array(np.full(shape, value), node.output[0]))
        graph.node.remove(node)
    read = {name for node in graph.node for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in read]
    inputs = [value for value in graph.input if value.name not in constants]
    del graph.initializer[:], graph.input[:]
    graph.initializer.extend(kept)
    graph.input.extend(inputs)


def _uses(graph: onnx.GraphProto) -> dict[str, Use]:
    """The use of each initialiser that is a weight; shapes for `Reshape` have none."""
    readers = {name: (node, slot) for node in graph.node for slot, name in enumerate(node.input)}

    def uses() -> Iterator[tuple[str, Use]]:
        for tensor in graph.initializer:
            node, slot = readers[tensor.name]
            while node.op_type in VIEWS and slot == 0:
                node, slot = readers[node.output[0]]
            if (node.op_type, slot) in ROLES:
                yield tensor.name, Use(node, ROLES[node.op_type, slot])

    return dict(uses())


def _classifier_factor(graph: onnx.GraphProto) -> dict[tuple[str, Role], float]:
    """The factor on the weights of the last layer, by its output."""
    last = [node for node in graph.node if node.op_type in ("Conv", "Gemm")][-1]
    return {(last.output[0], "weight"): CLASSIFIER_SCALE}


def _branch_factors(graph: onnx.GraphProto) -> dict[tuple[str, Role], float]:
    """The factor on the scale of each batch normalisation whose output is added to something, by that output."""
    normalised = {node.output[0] for node in graph.node if node.op_type == "BatchNormalization"}
    sums = [node for node in graph.node if node.op_type == "Sum"]
    factors: dict[tuple[str, Role], float] = {}
    for node in sums:
        branches = [name for name in node.input if name in normalised]
        has_identity = len(branches) < len(node.input)
        for name in branches:
            factors[name, "scale"] = (len(sums) if has_identity else len(branches)) ** -0.5
    return factors


def _random_values(shape: tuple[int, ...], use: Use, rng: np.random.Generator) -> NDArray[Any]:
    if use.role == "weight":
        values = rng.standard_normal(shape, dtype=np.float32)
        values *= np.sqrt(2.0 / _fan_in(shape, use.node))
        return values
    if use.role == "shift":
        return rng.normal(0.0, 0.1, shape)
    return rng.uniform(0.8, 1.2, shape)


def _fan_in(shape: tuple[int, ...], node: onnx.NodeProto) -> int:
    """Number of products in each output value of a `Conv` or `Gemm`."""
    if node.op_type == "Conv":
        return int(np.prod(shape[1:]))
    transposed = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
    return shape[-1] if transposed else shape[-2]


def main(arguments: list[str] | None = None) -> int:
    """Writes one light model; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m models_zoo.networks.light", description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=LIGHT_MODELS)
    parser.add_argument("--out", type=Path, required=True, help="the ONNX file to write")
    parser.add_argument("--seed", type=int, default=0, help="of the random weights (default: 0)")
    chosen = parser.parse_args(arguments)
    try:
        write_light_model(chosen.name, chosen.out, chosen.seed)
    except (GnnplaceError, OSError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    print(f"wrote {chosen.out} ({format_bytes(chosen.out.stat().st_size)})", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""ONNX files of any size, for testing readers."""

from pathlib import Path

import numpy as np
import onnx_ir as ir


def write_towers(nodes: int, path: Path) -> None:
    """Writes a model of eight towers of `MatMul`, `Relu` and `Add` that read from each other, with about `nodes` nodes."""
    rng, width, values = np.random.default_rng(0), 8, ir.DataType.FLOAT
    given = ir.Value(name="x", type=ir.TensorType(values), shape=ir.Shape(["batch", 16]))
    weights = [ir.Value(name=f"w{number}", const_value=ir.tensor(rng.normal(size=(16, 16)).astype(np.float32), name=f"w{number}")) for number in range(64)]  # fmt: skip
    made: list[ir.Node] = []

    def node(kind: str, *inputs: ir.Value) -> ir.Value:
        made.append(ir.Node("", kind, inputs, name=f"{kind}_{len(made)}"))
        made[-1].outputs[0].name = f"t{len(made)}"
        return made[-1].outputs[0]

    towers = [given] * width
    while len(made) < nodes:
        towers = [
            node("Add", node("Relu", node("MatMul", tower, weights[rng.integers(len(weights))])), towers[rng.integers(width)])
            for tower in towers
        ]  # fmt: skip
    result = node("Sum", *towers)
    result.type, result.shape = ir.TensorType(values), ir.Shape(["batch", 16])
    graph = ir.Graph([given], [result], nodes=made, initializers=weights, opset_imports={"": 21}, name="towers")
    ir.save(ir.Model(graph, ir_version=10), path)

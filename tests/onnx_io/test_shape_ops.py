"""Ops that compute with shapes, and so may run on the CPU beside a GPU."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from gnnplace.onnx_io.shape_ops import shape_ops
from tests.onnx_io.texts import parsed


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        ("y = Neg(x)", {}),
        ("s = Shape(x) r = Range(zero, s, one) f = Cast<to = 1>(r) c = Cos(f) n = Neg(x) y = Add(n, c)", "Shape Range Cast Cos"),
        ("s = Size(x) f = Cast<to = 1>(s) y = Add(x, f)", "Size Cast Add"),  # inputs of the model are no obstacle
        ("n = Neg(x) s = Size(n) f = Cast<to = 1>(s) y = Add(n, f)", "Size Cast"),
        ("s = Size(x) f = Cast<to = 1>(s) y = Mul(f, large)", "Size Cast"),
        ("s = Size(x) f = Cast<to = 1>(s) c = Constant<value = float {2.0}>() y = Mul(f, c)", "Size Cast Mul"),
        ("s = Shape(x) y = If<then_branch = t () => (float[K] a) { a = Cast<to = 1>(s) }, "
         "else_branch = e () => (float[K] b) { b = Identity(x) }>(yes)", "Shape Cast"),
    ],
)  # fmt: skip
def test_ops_that_depend_on_shapes_alone_are_counted(nodes: str, found: str, tmp_path: Path) -> None:
    text = f"g (float[N] x) => (float[M] y) {{ {nodes} }}"
    constants = {"zero": np.array(0), "one": np.array(1), "large": np.ones(101, np.float32), "yes": np.array(True)}
    model = parsed(text, **constants)
    assert dict(shape_ops(model.SerializeToString())) == dict.fromkeys(found.split() if found else (), 1)
    onnx.save(model, tmp_path / "m.onnx")
    assert shape_ops(tmp_path / "m.onnx") == shape_ops(model.SerializeToString())

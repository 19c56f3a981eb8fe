"""Generated inputs have the dtypes and shapes that the model expects."""

import numpy as np
import pytest

from gnnplace.errors import UnsupportedModel
from gnnplace.onnx_io.sample_inputs import sample_inputs


def test_every_dtype_gets_safe_values(read_text) -> None:
    model = read_text(
        """g (float[2, N] f, float16[2] h, double[1] d, int64[3] ids, uint8[2] u, int32 trips, bool[2] mask, string[2] s,
            bfloat16[2] b, float[?] u1, float[2] default = {1, 2}) => (float[2, N] y) { y = Relu(f) }""",
        N=3,
    )
    inputs = sample_inputs(model, np.random.default_rng(0))
    assert {name: (value.dtype.name, value.shape) for name, value in inputs.items()} == {
        "f": ("float32", (2, 3)), "h": ("float16", (2,)), "d": ("float64", (1,)), "ids": ("int64", (3,)),
        "u": ("uint8", (2,)), "trips": ("int32", ()), "mask": ("bool", (2,)), "s": ("object", (2,)),
        "b": ("bfloat16", (2,)), "u1": ("float32", (1,)),
    }  # fmt: skip
    assert ((inputs["f"] >= 0) & (inputs["f"] < 1)).all()
    assert inputs["ids"].tolist() == [0, 0, 0]
    assert inputs["trips"] == 1
    assert inputs["mask"].all()


def test_the_same_seed_gives_the_same_values(read_text) -> None:
    model = read_text("g (float[4] x) => (float[4] y) { y = Relu(x) }")
    first, again, other = (sample_inputs(model, np.random.default_rng(seed))["x"] for seed in (1, 1, 2))
    assert first.tolist() == again.tolist() != other.tolist()


@pytest.mark.parametrize(
    ("kind", "message"),
    [("complex64[2]", "is COMPLEX64; expected real numbers"), ("seq(float[2])", "is no tensor but Sequence")],
)
def test_an_input_that_cannot_be_generated_is_refused_by_name(kind: str, message: str, read_text) -> None:
    model = read_text(f"g ({kind} odd, float[1] x) => (float[1] y) {{ y = Relu(x) }}")
    with pytest.raises(UnsupportedModel, match=f"'odd' of model.onnx {message}"):
        sample_inputs(model, np.random.default_rng(0))

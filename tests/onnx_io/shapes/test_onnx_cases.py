"""ONNX's own test models: read, and given the shapes that they produce."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gnnplace.onnx_io.read import read_onnx
from gnnplace.onnx_io.shapes.inference import infer_shapes
from gnnplace.onnx_io.shapes.tensor_info import choose_dimensions

OPS = (
    "Attention", "BatchNormalization", "Col2Im", "Compress", "Conv", "ConvTranspose", "DeformConv", "DFT", "Dropout",
    "Einsum", "GRU", "GatherND", "Gemm", "GridSample", "GroupNormalization", "If", "LSTM", "LayerNormalization", "Loop",
    "MatMulInteger", "MaxPool", "MeanVarianceNormalization", "NonMaxSuppression", "NonZero", "OneHot", "Pad", "QLinearConv",
    "QLinearMatMul", "RNN", "Range", "ReduceLogSumExp", "Reshape", "Resize", "RoiAlign", "STFT", "Scan", "SequenceMap",
    "Slice", "SoftmaxCrossEntropyLoss", "Split", "TfIdfVectorizer", "Tile", "TopK", "Unique", "Upsample",
)  # fmt: skip

CASES = 10
"""Cases that are tried of each operator."""


@pytest.fixture(scope="module")
def cases() -> dict[str, list[Any]]:
    """ONNX's test cases by operator; those that spell the operator out by others are left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of the cases cast out of range on purpose
        from onnx.backend.test.case.node import collect_testcases

        found = [case for case in collect_testcases() if case.model is not None and "expanded" not in case.name]
    return {op: [case for case in found if case.model.graph.node[-1].op_type == op][:CASES] for op in OPS}


@pytest.mark.parametrize("op", OPS)
def test_shapes_of_results_are_those_that_the_op_produces(op: str, cases, tmp_path: Path) -> None:
    assert cases[op]
    for case in cases[op]:
        path = tmp_path / f"{case.name}.onnx"
        onnx.save(case.model, path)
        model = read_onnx(path)
        assert model.graph.op_names == tuple(node.name for node in model.model.graph)
        if model.warnings:  # shapes that depend on the data; the test of warnings is elsewhere
            continue
        dimensions = choose_dimensions(model.model.graph.inputs, {}, case.name)
        tensors = infer_shapes(model.model, dimensions)[0]
        for value, expected in zip(model.model.graph.outputs, case.data_sets[0][1], strict=True):
            if isinstance(expected, np.ndarray):
                assert (tensors[value].shape, case.name) == (expected.shape, case.name)
                if expected.dtype != np.dtype(object):
                    assert tensors[value].bytes == expected.nbytes

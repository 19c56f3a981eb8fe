"""Recipes of control flow, data-dependent shapes, integer weights and old files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch

from gnnplace.bench.zoo import try_recipe
from gnnplace.onnx_io.read import read_onnx
from models_zoo.networks.build import build_onnx
from models_zoo.networks.catalog import load_recipe
from models_zoo.networks.control_flow.detection import by_object


@pytest.mark.parametrize(
    "name", ["greedy_decoder", "early_exit", "deep_speech_3", "ssd_300", "mobilenet_int8", "alexnet_2018"]
)
def test_what_torch_computes_is_computed_by_the_parts_as_well(name: str, tmp_path: Path) -> None:
    found = try_recipe(load_recipe(name), training=False, folder=tmp_path)
    assert found["segments"] > 1
    assert found["torch_error"] <= 1e-4


def test_scan_costs_its_body_once_per_frame(tmp_path: Path) -> None:
    recipe = load_recipe("deep_speech_3")
    build_onnx(recipe, recipe.small, False, tmp_path / "m.onnx")
    graph = read_onnx(tmp_path / "m.onnx").graph
    scans = [op for op, kind in enumerate(graph.op_types) if kind == "Scan"]
    frames, product = recipe.small.frames // 2, 2 * recipe.small.batch * recipe.small.hidden**2
    assert len(scans) == 2 * recipe.small.layers
    assert all(frames * product <= graph.flops[op] <= 1.2 * frames * product for op in scans)


def test_a_body_that_reads_weights_from_outside_has_their_stage(tmp_path: Path) -> None:
    recipe = load_recipe("early_exit")
    built = build_onnx(recipe, recipe.small, False, tmp_path / "m.onnx")
    (branch,) = (node for node in onnx.load(built.path).graph.node if node.op_type == "If")
    assert {entry.key: entry.value for entry in branch.metadata_props}["gnnplace.stage"] == "1"


def test_a_sure_gate_takes_the_cheap_exit(tmp_path: Path) -> None:
    recipe = load_recipe("early_exit")
    built = build_onnx(recipe, recipe.small, False, tmp_path / "m.onnx")
    session = ort.InferenceSession(built.path, providers=["CPUExecutionProvider"])
    network = recipe.build(recipe.small)
    module = network.module.eval()  # type: ignore[union-attr]
    image = 1000 * built.case.inputs["image"]
    with torch.no_grad():
        features = module.first(module.stem(torch.from_numpy(image)))
        expected = module.cheap(features).numpy()
    (found,) = session.run(None, {"image": image})
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_an_old_file_keeps_its_version_and_lists_weights_as_inputs(tmp_path: Path) -> None:
    recipe = load_recipe("alexnet_2018")
    model = onnx.load(build_onnx(recipe, recipe.small, False, tmp_path / "m.onnx").path)
    assert (model.ir_version, model.opset_import[0].version) == (3, 9)
    assert {tensor.name for tensor in model.graph.initializer} < {value.name for value in model.graph.input}


def test_objects_whose_scores_differ_by_rounding_are_compared_as_a_set() -> None:
    boxes = np.array([[0.5, 0, 1, 1], [0.1, 0, 1, 1], [0.2, 0, 1, 1]])
    scores, swapped = np.array([0.9, 0.8, 0.7]), [1, 0, 2]
    outputs = [boxes, scores, np.array([1, 0, 0]), np.array([0, 1, 0])]
    other = [boxes[swapped], scores, outputs[2][swapped], outputs[3][swapped]]
    found, expected = by_object(other), by_object(outputs)
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
    assert found[2].tolist() == [0, 1, 0]
    assert found[1].tolist() == scores.tolist()

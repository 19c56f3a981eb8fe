"""Recipes of control flow, data-dependent shapes, integer weights and old files."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import torch

from gnnplace.onnx_io.read import read_onnx
from models_zoo.networks.catalog import load_recipe
from models_zoo.networks.control_flow.detection import by_object
from tests.models_zoo.small_networks import built, network_of


def test_scan_costs_its_body_once_per_frame(tmp_path: Path) -> None:
    small = load_recipe("deep_speech_3").small
    graph = read_onnx(built("deep_speech_3", tmp_path).path).graph
    scans = [op for op, kind in enumerate(graph.op_types) if kind == "Scan"]
    frames, product = small.frames // 2, 2 * small.batch * small.hidden**2
    assert len(scans) == 2 * small.layers
    assert all(frames * product <= graph.flops[op] <= 1.2 * frames * product for op in scans)


def test_a_body_that_reads_weights_from_outside_has_their_stage(tmp_path: Path) -> None:
    (branch,) = (node for node in onnx.load(built("early_exit", tmp_path).path).graph.node if node.op_type == "If")
    assert {entry.key: entry.value for entry in branch.metadata_props}["gnnplace.stage"] == "1"


def test_a_sure_gate_takes_the_cheap_exit(tmp_path: Path) -> None:
    export, module = built("early_exit", tmp_path), network_of("early_exit").module.eval()
    session = ort.InferenceSession(export.path, providers=["CPUExecutionProvider"])
    image = 1000 * export.case.inputs["image"]
    with torch.no_grad():
        features = module.first(module.stem(torch.from_numpy(image)))
        expected = module.cheap(features).numpy()
    (found,) = session.run(None, {"image": image})
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_an_old_file_keeps_its_version_and_lists_weights_as_inputs(tmp_path: Path) -> None:
    model = onnx.load(built("alexnet_2018", tmp_path).path)
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

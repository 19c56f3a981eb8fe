"""Transformers have a stage for every layer, and caches that carry a text on."""

import dataclasses
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch

from gnnplace.onnx_io.read import read_onnx
from models_zoo.networks.build import build_onnx
from models_zoo.networks.catalog import load_recipe
from tests.models_zoo.small_networks import built


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize(("name", "length"), [("gpt2", 4), ("llama", 5)])
def test_decoding_after_a_prompt_equals_reading_the_longer_prompt(name: str, length: int, tmp_path: Path) -> None:
    prompt, decode = load_recipe(f"{name}_prefill"), load_recipe(f"{name}_decode")
    shorter = dataclasses.replace(prompt.small, length=length, layers=1)
    longer = dataclasses.replace(prompt.small, length=length + 1, layers=1)
    sessions = [
        ort.InferenceSession(build_onnx(recipe, settings, False, tmp_path / f"{index}.onnx").path)
        for index, (recipe, settings) in enumerate([(prompt, shorter), (prompt, longer), (decode, shorter)])
    ]
    reads, reads_longer, decodes = sessions
    tokens = np.random.default_rng(0).integers(0, prompt.small.vocabulary, (prompt.small.batch, length + 1))
    names = [value.name for value in reads.get_outputs()]
    before = dict(zip(names, reads.run(None, {"tokens": tokens[:, :-1]}), strict=True))
    feed = {"tokens": tokens[:, -1:], "position": np.array([length])}
    for value in decodes.get_inputs()[2:]:
        cache = np.zeros(value.shape, np.float32)
        cache[:, :, :length] = before[value.name.replace("past", "present")]
        feed[value.name] = cache
    (expected,) = reads_longer.run(["logits"], {"tokens": tokens})
    found, position = decodes.run(["logits", "next_position"], feed)
    assert found == pytest.approx(expected, abs=1e-5)
    assert position.tolist() == [length + 1]


@pytest.mark.parametrize(
    ("name", "stages"),
    [("bert_base", {0, 1}), ("gpt2_decode", {0, 1}), ("t5_small", {0, 1, 5, 6, 7}), ("mamba_130m", {0, 1})],
)
def test_every_layer_is_a_stage(name: str, stages: set[int], tmp_path: Path) -> None:
    graph = read_onnx(built(name, tmp_path).path).graph
    assert set(graph.stages.tolist()) == stages


def test_a_tied_weight_is_one_input_of_the_training_step(tmp_path: Path) -> None:
    step = built("gpt2", tmp_path, training=True)
    names = {value.name for value in onnx.load(step.path, load_external_data=False).graph.input}
    assert "network.transformer.wte.weight" in names
    assert "network.lm_head.weight" not in names
    assert "network.transformer.wte.weight.first.new" in step.case.expected

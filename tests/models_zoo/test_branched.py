"""Wide networks have the sizes of their papers, branches that depend on nothing of each other, and exact routing."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import networkx as nx
import numpy as np
import onnx
import pytest
import torch
from torch import nn
from transformers import MixtralConfig
from transformers.models.mixtral.modeling_mixtral import MixtralExperts

from gnnplace.graph.op_graph import OpGraph
from gnnplace.onnx_io.read import read_onnx
from models_zoo.networks.branched import dlrm, ensemble, moe, nasnet, two_tower, unet
from models_zoo.networks.build import build_onnx
from models_zoo.networks.catalog import load_recipe
from models_zoo.networks.recipe import TorchNetwork


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def built(name: str, folder: Path) -> Path:
    recipe = load_recipe(name)
    return build_onnx(recipe, recipe.small, False, folder / f"{name}.onnx").path


def forward(name: str) -> TorchNetwork:
    recipe = load_recipe(name)
    network = recipe.build(recipe.small)
    assert isinstance(network, TorchNetwork)
    return network


def connected_branches(graph: OpGraph, pattern: str) -> tuple[int, list[tuple[str, str]]]:
    """How many branches there are, by the group of the pattern, and the pairs of them with a path from one to the other."""
    paths: nx.DiGraph[int] = nx.DiGraph()
    paths.add_nodes_from(range(graph.num_ops))
    for producer, start in zip(graph.tensor_producer, range(graph.num_tensors), strict=True):
        consumers = graph.consumers[graph.consumer_offsets[start] : graph.consumer_offsets[start + 1]]
        paths.add_edges_from((int(producer), int(consumer)) for consumer in consumers)
    branch = {i: found[1] for i, name in enumerate(graph.op_names) if (found := re.match(pattern, name))}
    joined = {
        (branch[op], branch[later])
        for op in branch
        for later in nx.descendants(paths, op) & branch.keys()
        if branch[op] != branch[later]
    }
    return len(set(branch.values())), sorted(joined)


@pytest.mark.parametrize(("name", "millions"), [("nasnet_mobile", 5.3), ("nasnet_large", 88.8)])
def test_nasnet_has_the_papers_number_of_parameters(name: str, millions: float) -> None:
    with torch.device("meta"):
        network = nasnet.NasNet(load_recipe(name).settings)
    assert parameters(network) / 1e6 == pytest.approx(millions, abs=0.05)


def test_the_denoiser_at_320_channels_is_that_of_stable_diffusion() -> None:
    with torch.device("meta"):
        reduced, whole = unet.Denoiser(unet.Settings()), unet.Denoiser(unet.Settings(channels=320))
    assert parameters(whole) == 859_520_964
    assert parameters(reduced) == 314_140_228


def test_the_routed_transformer_has_the_stated_number_of_parameters() -> None:
    with torch.device("meta"):
        network = moe.RoutedTransformer(moe.Settings())
    assert round(parameters(network) / 1e6) == 428


def test_tables_take_less_than_a_gigabyte_and_pairs_are_all_of_27() -> None:
    with torch.device("meta"):
        network = dlrm.Dlrm(dlrm.Settings())
    assert 4 * parameters(network.tables) == pytest.approx(0.95e9, rel=0.01)
    assert network.get_buffer("pairs").numel() == 27 * 26 // 2


def test_interactions_are_the_dot_products_below_the_diagonal() -> None:
    network = dlrm.Dlrm(dlrm.Settings(features=2, width=2, most_rows=5, bottom=8, top=8))
    assert network.get_buffer("pairs").tolist() == [3, 6, 7]  # (1, 0), (2, 0), (2, 1) of 3 by 3


def test_siamese_encoders_share_weights_that_are_stored_once(tmp_path: Path) -> None:
    model = onnx.load(built("two_tower_siamese", tmp_path), load_external_data=False)
    stored = {tensor.name: int(np.prod(tensor.dims)) for tensor in model.graph.initializer}
    network = forward("two_tower_siamese").module
    weights = {name: value.numel() for name, value in network.named_parameters() if value.dim() == 2}
    assert isinstance(network, two_tower.SentencePair)
    assert sum(stored.values()) <= 1.05 * parameters(network) + 600  # position ids and scalars
    (words,) = (name for name in weights if name.endswith("word_embeddings.weight"))
    assert sum(words in node.input for node in model.graph.node) == 2
    assert stored[words] == weights[words]


def test_similarity_does_not_depend_on_padding() -> None:
    network = forward("two_tower_siamese")
    inputs = dict(network.inputs)
    padded = inputs["first_mask"] == 0
    assert padded.any()
    network.module.eval()
    with torch.no_grad():
        before = network.module(**inputs)
        inputs["first"] = torch.where(padded, 7, inputs["first"])
        assert network.module(**inputs) == pytest.approx(before.numpy(), abs=1e-6)


@pytest.mark.parametrize("layer", [0, 1])
def test_experts_of_a_layer_are_parallel(layer: int, routed: OpGraph) -> None:
    count, joined = connected_branches(routed, rf"mixtral\.model\.layers\.{layer}\.mlp\.experts\.experts\.(\d+)\b")
    assert (count, joined) == (4, [])


def test_an_expert_is_a_stage_of_its_own_and_the_rest_is_the_last(routed: OpGraph) -> None:
    assert set(routed.stages) == {0, 1, 2, 3, 8}
    gate = [i for i, name in enumerate(routed.op_names) if ".mlp.gate" in name]
    assert gate
    assert set(routed.stages[gate]) == {8}


@pytest.fixture(scope="module")
def routed(tmp_path_factory: pytest.TempPathFactory) -> OpGraph:
    return read_onnx(built("moe_8", tmp_path_factory.mktemp("routed"))).graph


def test_members_of_an_ensemble_are_parallel(tmp_path: Path) -> None:
    count, joined = connected_branches(read_onnx(built("ensemble_mlp", tmp_path)).graph, r"members\.(\d+)\b")
    assert (count, joined) == (3, [])


def test_an_ensemble_averages_the_members_probabilities() -> None:
    network = forward("ensemble_mlp")
    assert isinstance(network.module, ensemble.Ensemble)
    network.module.eval()
    probabilities, logits = network.module(**network.inputs)
    each = [member(network.inputs["x"]).softmax(-1) for member in network.module.members]
    assert probabilities.detach() == pytest.approx((sum(each) / len(each)).detach().numpy(), abs=1e-6)
    assert len(logits) == len(each)


def routing() -> tuple[MixtralConfig, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Twelve tokens, two of four experts for each; every token's first choice is expert 0 or 1."""
    torch.manual_seed(0)
    config = MixtralConfig(hidden_size=8, intermediate_size=12, num_local_experts=4, num_experts_per_tok=2)
    chosen = torch.stack([torch.arange(12) % 2, 2 + torch.arange(12) % 2], 1)
    weights = torch.rand(12, 2)
    return config, torch.randn(12, 8), chosen, weights / weights.sum(1, keepdim=True)


def test_experts_with_room_for_all_tokens_compute_what_mixtral_computes() -> None:
    config, x, chosen, weights = routing()
    experts, own = moe.Experts(config, capacity=2.0), MixtralExperts(config)
    with torch.no_grad():
        for index, expert in enumerate(experts.experts):
            own.gate_up_proj[index] = torch.cat([expert.gate_proj.weight, expert.up_proj.weight])
            own.down_proj[index] = expert.down_proj.weight
        assert experts(x, chosen, weights) == pytest.approx(own(x, chosen, weights).numpy(), abs=1e-6)


def test_a_full_expert_leaves_out_the_tokens_to_which_the_gate_gives_least() -> None:
    config, x, chosen, weights = routing()
    experts = moe.Experts(config, capacity=0.5)
    kept = weights.clone()
    for expert in range(4):
        places = weights.where(chosen == expert, 0.0)
        least = places.flatten().topk(3).values[-1]  # capacity 0.5 of 12 * 2 / 4 tokens
        kept = kept.where((chosen != expert) | (weights >= least), 0.0)
    assert (kept == 0).sum() == 12
    with torch.no_grad():
        all_kept = moe.Experts(config, capacity=2.0)
        all_kept.load_state_dict(experts.state_dict())
        assert experts(x, chosen, weights) == pytest.approx(all_kept(x, chosen, kept).numpy(), abs=1e-6)


def test_more_items_in_a_batch_make_more_columns_of_the_retrieval_logits() -> None:
    settings = dataclasses.replace(load_recipe("two_tower_retrieval").small, batch=3)
    network = load_recipe("two_tower_retrieval").build(settings)
    assert isinstance(network, TorchNetwork)
    logits = network.module(**network.inputs)
    assert logits.shape == (3, 3)
    assert logits.abs().max() <= 1 / settings.temperature + 1e-3  # cosines over the temperature

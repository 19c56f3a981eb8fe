"""Wide networks have the sizes of their papers, branches that depend on nothing of each other, and exact routing."""

import re
from pathlib import Path

import networkx as nx
import numpy as np
import onnx
import pytest
import torch
from transformers import MixtralConfig
from transformers.models.mixtral.modeling_mixtral import MixtralExperts

from gnnplace.graph.op_graph import OpGraph
from gnnplace.onnx_io.read import read_onnx
from models_zoo.networks.branched import dlrm, ensemble, moe, two_tower
from models_zoo.networks.catalog import load_recipe
from tests.models_zoo.small_networks import built, network_of, parameters


def connected_branches(graph: OpGraph, pattern: str) -> tuple[int, list[tuple[str, str]]]:
    """Number of branches, named by the group of the pattern, and the pairs of branches with a path between them."""
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


def test_interactions_are_the_dot_products_below_the_diagonal() -> None:
    network = dlrm.Dlrm(dlrm.Settings(features=2, width=2, most_rows=5, bottom=8, top=8))
    assert network.get_buffer("pairs").tolist() == [3, 6, 7]  # (1, 0), (2, 0), (2, 1) of 3 by 3


def test_siamese_encoders_share_weights_that_are_stored_once(tmp_path: Path) -> None:
    model = onnx.load(built("two_tower_siamese", tmp_path).path, load_external_data=False)
    stored = {tensor.name: int(np.prod(tensor.dims)) for tensor in model.graph.initializer}
    network = network_of("two_tower_siamese").module
    weights = {name: value.numel() for name, value in network.named_parameters() if value.dim() == 2}
    assert isinstance(network, two_tower.SentencePair)
    assert sum(stored.values()) <= 1.05 * parameters(network) + 600  # position ids and scalars
    (words,) = (name for name in weights if name.endswith("word_embeddings.weight"))
    assert sum(words in node.input for node in model.graph.node) == 2
    assert stored[words] == weights[words]


def test_similarity_does_not_depend_on_padding() -> None:
    network = network_of("two_tower_siamese")
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
    return read_onnx(built("moe_8", tmp_path_factory.mktemp("routed")).path).graph


def test_members_of_an_ensemble_are_parallel(tmp_path: Path) -> None:
    count, joined = connected_branches(read_onnx(built("ensemble_mlp", tmp_path).path).graph, r"members\.(\d+)\b")
    assert (count, joined) == (3, [])


def test_an_ensemble_averages_the_members_probabilities() -> None:
    network = network_of("ensemble_mlp")
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
    network = network_of("two_tower_retrieval", batch="3")
    logits = network.module(**network.inputs)
    assert logits.shape == (3, 3)
    temperature = load_recipe("two_tower_retrieval").small.temperature
    assert logits.abs().max() <= 1 / temperature + 1e-3  # cosines over the temperature

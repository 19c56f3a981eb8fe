"""The image networks of the papers have the published structure, and their stages follow the blocks."""

import itertools

import pytest
import torch
from torch import nn

from models_zoo.networks.papers import cifar_cells, inception_v3, resnet
from models_zoo.networks.recipe import Recipe
from tests.models_zoo.small_networks import network_of, node_stages


def test_the_auxiliary_classifier_of_inception_v3_counts_in_training_only() -> None:
    (recipe,) = inception_v3.RECIPES
    network = network_of(recipe.name)
    assert network.loss is not None
    logits, auxiliary = network.module.train()(**network.inputs)
    label = network.targets["label"]
    expected = nn.functional.cross_entropy(logits, label) + 0.4 * nn.functional.cross_entropy(auxiliary, label)
    torch.testing.assert_close(network.loss((logits, auxiliary), label), expected)
    assert network.module.eval()(**network.inputs).shape == logits.shape


@pytest.mark.parametrize(
    ("recipe", "stages"),
    [
        (resnet.RECIPES[0], [0, 3, 7, 8, 13, 15]),  # residual blocks of the full network, and the classifier
        (inception_v3.RECIPES[0], [0, 4, 9, 10, 12]),  # stem, 6a, 7a, 7b, classifier
        *((recipe, [0, 1, 2, 4]) for recipe in cifar_cells.RECIPES[:3]),  # cells; the classifier is with the last one
    ],
)
def test_stages_are_those_of_the_blocks_of_the_full_network_in_order(recipe: Recipe, stages: list[int]) -> None:
    found = [stage for _, stage in node_stages(recipe.name)]
    assert sorted(set(found)) == stages
    assert found == sorted(found) or recipe in cifar_cells.RECIPES


def test_the_random_cells_are_32_distinct_architectures_with_both_kinds_of_cell() -> None:
    members = [recipe.settings for recipe in cifar_cells.RECIPES]
    assert [recipe.name for recipe in cifar_cells.RECIPES] == [f"cifar_cell_{member:02}" for member in range(32)]
    pairs = {cifar_cells.random_cells(settings.member, settings.nodes) for settings in members}
    assert len(pairs) == 32
    assert all(normal != reduction for normal, reduction in pairs)
    named = {name for pair in pairs for cell in pair for node in cell for name in node.operations}
    assert named == set(cifar_cells.OPERATIONS)


def test_a_member_has_the_same_cells_in_every_process_and_reads_earlier_nodes_only() -> None:
    first = cifar_cells.random_cells(3, 5)
    assert first == cifar_cells.random_cells(3, 5)
    for cell in first:
        assert all(max(node.inputs) < index for index, node in enumerate(cell, 2))


def test_a_cell_gives_every_node_that_no_other_reads() -> None:
    node = cifar_cells.Node
    plan = (
        node((0, 0), ("identity", "average pool")),
        node((2, 0), ("maximum pool", "separable 3x3")),
        node((2, 0), ("identity", "separable 5x5")),
    )
    for reduces, size in ((False, 8), (True, 4)):
        cell = cifar_cells.Cell(plan, (6, 6), 4, reduces=reduces, follows_reduction=False)
        assert cell.unused == [1, 3, 4]
        x = torch.randn(2, 6, 8, 8)
        assert cell(x, x).shape == (2, 12, size, size)


@pytest.mark.parametrize("module", [cifar_cells, inception_v3, resnet], ids=lambda module: module.__name__)
def test_outputs_differ_between_images_and_are_finite(module: object) -> None:
    recipe: Recipe
    for recipe in itertools.islice(module.RECIPES, 4):  # type: ignore[attr-defined]
        network = network_of(recipe.name)
        with torch.no_grad():
            logits = network.module.eval()(**network.inputs)
        assert logits.isfinite().all()
        assert float(logits.std(0).mean()) > 1e-2

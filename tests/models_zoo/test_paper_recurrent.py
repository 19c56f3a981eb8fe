"""The recurrent networks of the papers have the layers, cells and stages that their names say."""

import pytest
import torch
from torch import Tensor, nn

from models_zoo.networks.catalog import recipes_of
from models_zoo.networks.papers.ptb_cells import MEMBERS, Cell, Choice, random_cell
from tests.models_zoo.small_networks import network_of, node_stages


def tree(choices: tuple[Choice, ...], node: int = 0) -> tuple[object, ...]:
    """A cell without the numbers of its nodes: equal for cells that compute the same."""
    below = [tree(choices, index) for index, choice in enumerate(choices) if choice.previous == node]
    return (choices[node].activation, *sorted(below, key=repr))


def test_no_two_cells_compute_the_same() -> None:
    recipes = recipes_of("ptb_cells").values()
    cells = {tree(random_cell(recipe.settings.member, recipe.settings.nodes)) for recipe in recipes}
    assert len(cells) == len(recipes) == MEMBERS == 32


def test_a_small_cell_is_the_beginning_of_the_full_one() -> None:
    assert random_cell(7, nodes=6) == random_cell(7, nodes=12)[:6]


def test_a_cell_is_the_mean_of_its_loose_ends_behind_highway_gates() -> None:
    cell = Cell((Choice(-1, "tanh"), Choice(0, "relu"), Choice(0, "identity")), width=3)
    x, last = torch.randn(2, 3), torch.randn(2, 3)

    def node(index: int, read: Tensor, carried: Tensor, activation: nn.Module) -> Tensor:
        weight = cell.get_parameter(f"nodes.{index}.linear.weight")
        gate = torch.sigmoid(read @ weight[:3].T)
        return gate * activation(read @ weight[3:].T) + (1 - gate) * carried

    first = node(0, torch.cat((x, last), 1), last, nn.Tanh())
    ends = [node(1, first, first, nn.ReLU()), node(2, first, first, nn.Identity())]
    torch.testing.assert_close(cell(x, last), (ends[0] + ends[1]) / 2)


@pytest.mark.parametrize("layers", ["1", "2", "5"])
def test_settings_change_the_layers_of_encoder_and_decoder(layers: str) -> None:
    module = network_of("nmt_4", layers=layers).module
    cells = [name for name, part in module.named_modules() if isinstance(part, nn.LSTMCell)]
    assert len(cells) == 2 * int(layers) + 1  # the first encoder layer reads in both directions
    assert module(torch.tensor([[1, 2]]), torch.tensor([[3, 4]])).shape[:2] == (1, 2)


def test_the_translation_depends_on_the_whole_source_and_on_no_later_target() -> None:
    module = network_of("nmt_4", steps="3").module
    source, target = torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5, 6]])
    logits = module(source, target)
    for position in range(3):
        other = source.clone()
        other[0, position] = 9
        assert not torch.equal(module(other, target)[:, 0], logits[:, 0])
    other = target.clone()
    other[0, 2] = 9
    torch.testing.assert_close(module(source, other)[:, :2], logits[:, :2])


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of libraries among themselves
def test_layers_of_encoder_and_decoder_share_stages_and_attention_goes_with_the_last() -> None:
    found: dict[str, set[int]] = {}
    for name, stage in node_stages("nmt_8"):
        found.setdefault(name.split("/")[0], set()).add(stage)
    expected = {f"{side}.layers.{k}": {k} for side in ("encoder", "decoder") for k in range(3)}
    expected |= {"encoder.reverse": {0}, "encoder.embedding": {0}, "softmax": {2}}
    assert {name: found[name] for name in expected} == expected
    attention = (stages for name, stages in found.items() if name.startswith("decoder.attention"))
    assert set().union(*attention) == {2}

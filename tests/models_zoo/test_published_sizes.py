"""Networks have as many parameters as their papers state."""

import pytest
import torch

from models_zoo.networks.branched import dlrm, unet
from models_zoo.networks.catalog import load_recipe
from models_zoo.networks.papers import inception_v3
from models_zoo.networks.recipe import TorchNetwork
from tests.models_zoo.small_networks import parameters


@pytest.mark.parametrize(
    ("name", "millions", "within"),
    [
        ("resnet_50", 25.557, 1e-3),
        ("resnet_101", 44.549, 1e-3),
        ("nasnet_mobile", 5.3, 0.05),
        ("nasnet_large", 88.8, 0.05),
        ("moe_8", 428, 0.5),
        ("bert_base", 109.5, 1.0),  # 110 M with the pooler, which a masked-language model leaves out
        ("bert_large", 335.2, 3.0),
        ("gpt2", 124.4, 1.0),
        ("t5_small", 60.5, 0.6),
        ("t5_base", 222.9, 2.0),
        ("vit_base", 86.6, 0.8),
        ("swin_tiny", 28.3, 0.3),
        ("whisper_tiny", 37.8, 0.4),  # 39 M with the positions of the encoder, which are no parameters here
        ("whisper_base", 72.6, 0.7),
        ("mamba_130m", 129.1, 1.3),
    ],
)
def test_a_network_has_the_published_number_of_parameters(name: str, millions: float, within: float) -> None:
    recipe = load_recipe(name)
    with torch.device("meta"):
        network = recipe.make(recipe.settings)
    assert isinstance(network, TorchNetwork)
    assert parameters(network.module) / 1e6 == pytest.approx(millions, abs=within)


def test_the_denoiser_at_320_channels_is_that_of_stable_diffusion() -> None:
    with torch.device("meta"):
        reduced, whole = unet.Denoiser(unet.Settings()), unet.Denoiser(unet.Settings(channels=320))
    assert parameters(whole) == 859_520_964
    assert parameters(reduced) == 314_140_228


def test_tables_take_less_than_a_gigabyte_and_pairs_are_all_of_27() -> None:
    with torch.device("meta"):
        network = dlrm.Dlrm(dlrm.Settings())
    assert 4 * parameters(network.tables) == pytest.approx(0.95e9, rel=0.01)
    assert network.get_buffer("pairs").numel() == 27 * 26 // 2


def test_inception_v3_has_the_published_blocks_and_parameters_beside_the_auxiliary_classifier() -> None:
    with torch.device("meta"):
        network = inception_v3.InceptionV3(inception_v3.Settings())
    auxiliary = parameters(network.auxiliary)
    assert parameters(network) - auxiliary == 23_834_568
    assert auxiliary == 3_326_696
    assert [*network.mixed] == ["5b", "5c", "5d", "6a", "6b", "6c", "6d", "6e", "7a", "7b", "7c"]

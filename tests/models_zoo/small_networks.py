"""Small variants of the zoo's recipes, as networks, files and stages."""

from pathlib import Path

from torch import nn

from gnnplace.onnx_io.model import STAGE_KEY
from models_zoo.networks.build import Built, build_onnx
from models_zoo.networks.catalog import load_recipe
from models_zoo.networks.export.inference import inference_model
from models_zoo.networks.export.stages import mark_stages
from models_zoo.networks.recipe import TorchNetwork


def parameters(module: nn.Module) -> int:
    """Number of values in all parameters."""
    return sum(parameter.numel() for parameter in module.parameters())


def network_of(name: str, **changes: str) -> TorchNetwork:
    """The small variant with changed settings."""
    recipe = load_recipe(name)
    network = recipe.build(recipe.at("small", changes))
    assert isinstance(network, TorchNetwork)
    return network


def built(name: str, folder: Path, training: bool = False) -> Built:
    """The export of the small variant, as `NAME.onnx` in the folder."""
    recipe = load_recipe(name)
    return build_onnx(recipe, recipe.small, training, folder / f"{name}.onnx")


def node_stages(name: str) -> list[tuple[str, int]]:
    """Name and stage of every node of the forward pass, in order."""
    model = inference_model(network_of(name))
    mark_stages(model, load_recipe(name).stages)
    return [(str(node.name), int(node.metadata_props[STAGE_KEY])) for node in model.graph]

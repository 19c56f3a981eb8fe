"""A file as exporters wrote it in 2018: opset 9, IR 3, every weight an input as well, nodes without names."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from models_zoo.networks.control_flow.graph_writer import GraphWriter, typed
from models_zoo.networks.recipe import OnnxNetwork, Recipe, StageRule

_OPSET = 9
_IR_VERSION = 3
"""The last in which an initialiser had to be an input."""
_DROPOUT = 0.5


@dataclass(frozen=True)
class Settings:
    """Krizhevsky et al. (2012), section 3.5, with its batch of 128; local response normalisation with bias 1."""

    divisor: int = 1
    """Factor on all channels and hidden units."""
    batch: int = 128
    image: int = 227
    classes: int = 1000


class AlexNet(nn.Module):
    """`image [B, 3, H, W]` to `probability [B, C]`; dropout has no effect."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        narrow, middle, wide, units = (channels // settings.divisor for channels in (96, 256, 384, 4096))
        norm = nn.LocalResponseNorm(5, 1e-4, 0.75, 1.0)
        self.features = nn.Sequential(
            *(nn.Conv2d(3, narrow, 11, 4), nn.ReLU(), norm, nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(narrow, middle, 5, padding=2, groups=2), nn.ReLU(), norm, nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(middle, wide, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(wide, wide, 3, padding=1, groups=2), nn.ReLU()),
            *(nn.Conv2d(wide, middle, 3, padding=1, groups=2), nn.ReLU(), nn.MaxPool2d(3, 2)),
        )
        side = ((settings.image - 11) // 4 + 1 - 3) // 2 + 1
        self.flat = middle * (((side - 3) // 2 + 1 - 3) // 2 + 1) ** 2
        self.classifier = nn.Sequential(
            *(nn.Linear(self.flat, units), nn.ReLU(), nn.Dropout(_DROPOUT)),
            *(nn.Linear(units, units), nn.ReLU(), nn.Dropout(_DROPOUT)),
            *(nn.Linear(units, settings.classes), nn.Softmax(-1)),
        )

    def forward(self, image: Tensor) -> Tensor:
        """Probabilities of the classes."""
        probability: Tensor = self.classifier(self.features(image).reshape(-1, self.flat))
        return probability


def _make(settings: Settings) -> OnnxNetwork:
    module = AlexNet(settings).eval()
    shape = (settings.batch, 3, settings.image, settings.image)

    def reference(inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        with torch.no_grad():
            return [module(torch.from_numpy(inputs["image"])).numpy()]

    return OnnxNetwork(_model(module, settings), {"image": torch.randn(shape).numpy()}, reference)


def _model(module: AlexNet, settings: Settings) -> ir.Model:
    writer = GraphWriter()
    image = writer.input("image", ir.DataType.FLOAT, (settings.batch, 3, settings.image, settings.image))
    x = image
    for index, layer in enumerate(module.features):
        x = _layer(writer, layer, f"features.{index}", x)
    x = writer.op("Reshape", x, writer.constant((-1, module.flat)))
    for index, layer in enumerate(module.classifier):
        x = _layer(writer, layer, f"classifier.{index}", x)
    x.name = "probability"
    model = writer.model([image], [typed(x, ir.DataType.FLOAT, (settings.batch, settings.classes))], _OPSET)
    model.graph.inputs.extend(writer.weights.values())
    model.ir_version = _IR_VERSION
    for node in model.graph:
        node.name = None
    return model


def _layer(writer: GraphWriter, layer: nn.Module, at: str, x: ir.Value) -> ir.Value:
    match layer:
        case nn.Conv2d():
            return writer.op(
                "Conv", x, *writer.parameters(layer, at), kernel_shape=layer.kernel_size, strides=layer.stride,
                pads=(*layer.padding, *layer.padding), dilations=layer.dilation, group=layer.groups,
            )  # fmt: skip
        case nn.Linear():
            return writer.op("Gemm", x, *writer.parameters(layer, at), alpha=1.0, beta=1.0, transB=1)
        case nn.LocalResponseNorm():
            return writer.op("LRN", x, size=layer.size, alpha=layer.alpha, beta=layer.beta, bias=layer.k)
        case nn.MaxPool2d():
            return writer.op("MaxPool", x, kernel_shape=(3, 3), strides=(2, 2), pads=(0, 0, 0, 0))
        case nn.Dropout():
            return writer.op("Dropout", x, ratio=layer.p)
        case nn.Softmax():
            return writer.op("Softmax", x, axis=1)
        case _:
            return writer.op("Relu", x)


RECIPES = (
    Recipe(
        name="alexnet_2018",
        summary="AlexNet in opset 9, with its weights as inputs",
        make=_make,
        settings=Settings(),
        small=Settings(divisor=16, batch=2, image=67, classes=10),
        source="Krizhevsky et al. 2012, section 3.5",
        stages=StageRule(
            (
                *((rf"features\.{index}\.", stage) for stage, index in enumerate((0, 4, 8, 10, 12))),
                *((rf"classifier\.{index}\.", 5 + stage) for stage, index in enumerate((0, 3, 6))),
            )
        ),
    ),
)

"""An int8 network: integer weights, and activations between `QuantizeLinear` and `DequantizeLinear`.

ONNX Runtime may compute such a model in integers. So that every kernel gives the same numbers, all scales are powers of
two: sums of products are then exact, in float32 as in int32, and rounding to a quantum is the same. Weights have
7 bits, as ONNX Runtime's documentation advises for processors whose 16-bit sums saturate (its `reduce_range`).
"""

import math
from dataclasses import dataclass

import torch
import torch.ao.quantization.fx._decomposed  # the ops of `quantized_decomposed`
from torch import Tensor, nn

from models_zoo.networks.recipe import Recipe, StageRule, TorchNetwork

_OPS = torch.ops.quantized_decomposed
_WEIGHT_LIMIT = 63
_ACTIVATION_LIMIT = 127

_BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
"""Channels and stride of each depthwise separable block: Howard et al., table 1."""


@dataclass(frozen=True)
class Settings:
    """Howard et al. (MobileNets, 2017), table 1, at 128 x 128 pixels (table 7); int8 as Jacob et al. (2018), section 4.

    That image size gives the last average 4 x 4 terms, so that it is exact as well. Batch norm is folded into the
    weights, as it is in every int8 model; its biases are left out.
    """

    divisor: int = 1
    """Factor on all channels."""
    batch: int = 32
    image: int = 128
    classes: int = 1000


class Quantised(nn.Module):
    """Activations rounded to a scale that the first batch settles."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 0.0

    def forward(self, x: Tensor) -> Tensor:
        """The values that int8 can hold."""
        if not self.scale:
            self.scale = 2.0 ** math.ceil(math.log2(float(x.abs().max()) / _ACTIVATION_LIMIT))
        code = (self.scale, 0, -128, 127, torch.int8)
        found: Tensor = _OPS.dequantize_per_tensor(_OPS.quantize_per_tensor(x, *code), *code)
        return found


class QuantisedLayer(nn.Module):
    """A convolution or linear layer with int8 weights, one scale per output channel, then perhaps a ReLU."""

    def __init__(self, layer: nn.Conv2d | nn.Linear, activation: nn.Module) -> None:
        super().__init__()
        nn.init.kaiming_normal_(layer.weight)
        weight = layer.weight.detach()
        largest = weight.flatten(1).abs().amax(1)
        scale = 2.0 ** torch.ceil(torch.log2(largest / _WEIGHT_LIMIT))
        self.stride = layer.stride if isinstance(layer, nn.Conv2d) else None
        self.padding = layer.padding if isinstance(layer, nn.Conv2d) else 0
        self.groups = layer.groups if isinstance(layer, nn.Conv2d) else 1
        self.register_buffer("weight", (weight / scale.view(-1, *(1,) * (weight.dim() - 1))).round().to(torch.int8))
        self.register_buffer("scale", scale)
        self.register_buffer("zero", torch.zeros(len(scale), dtype=torch.int64))
        self.activation = activation
        self.quantised = Quantised()

    def forward(self, x: Tensor) -> Tensor:
        """The layer on values that int8 can hold, rounded to such values again."""
        limits = (-_WEIGHT_LIMIT, _WEIGHT_LIMIT, torch.int8)
        weight = _OPS.dequantize_per_channel(self.weight, self.scale, self.zero, 0, *limits)
        if self.stride is None:
            y = nn.functional.linear(x, weight)
        else:
            y = nn.functional.conv2d(x, weight, None, self.stride, self.padding, 1, self.groups)
        found: Tensor = self.quantised(self.activation(y))
        return found


class MobileNet(nn.Module):
    """`image [B, 3, H, W]` to `logits [B, C]`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        width = 32 // settings.divisor
        self.image = Quantised()
        self.stem = _convolution(3, width, 3, 2, 1)
        self.blocks = nn.ModuleList()
        for channels, stride in _BLOCKS:
            narrow, width = width, channels // settings.divisor
            self.blocks.append(
                nn.Sequential(_convolution(narrow, narrow, 3, stride, narrow), _convolution(narrow, width, 1, 1, 1))
            )
        self.pooled = Quantised()
        self.classifier = QuantisedLayer(nn.Linear(width, settings.classes), nn.Identity())

    def forward(self, image: Tensor) -> Tensor:
        """Logits of the classes."""
        x = self.stem(self.image(image))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.classifier(self.pooled(x.mean((2, 3))))
        return logits


def _convolution(inputs: int, outputs: int, kernel: int, stride: int, groups: int) -> QuantisedLayer:
    layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return QuantisedLayer(layer, nn.ReLU())


def _make(settings: Settings) -> TorchNetwork:
    module = MobileNet(settings).eval()
    image = torch.randn(settings.batch, 3, settings.image, settings.image)
    with torch.no_grad():
        module(image)  # settles the scales
    return TorchNetwork(module, inputs={"image": image}, outputs=("logits",))


RECIPES = (
    Recipe(
        name="mobilenet_int8",
        summary="MobileNet with int8 weights and activations",
        make=_make,
        settings=Settings(),
        small=Settings(divisor=8, batch=2, image=32, classes=10),
        source="Howard et al. 2017 (MobileNets), table 1; Jacob et al. 2018, section 4",
        stages=StageRule(
            ((r"(image|stem)\.", 0), (r"blocks\.(\d+)\.", r"\1"), (r"(pooled|classifier)\.", len(_BLOCKS) - 1)),
        ),
    ),
)

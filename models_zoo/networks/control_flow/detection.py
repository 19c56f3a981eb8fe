"""A detector: boxes and scores from six grids, then `NonMaxSuppression`, whose outputs are as long as there are objects."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from models_zoo.networks.control_flow.graph_writer import GraphWriter, typed
from models_zoo.networks.export.inference import export_module
from models_zoo.networks.recipe import OnnxNetwork, Recipe, StageRule

_IMAGE = 300
_GRIDS = (38, 19, 10, 5, 3, 1)
_RATIOS = ((2,), (2, 3), (2, 3), (2, 3), (2,), (2,))
_SIZES = (30, 60, 111, 162, 213, 264, 315)
_CANDIDATES = 400
_OVERLAP = 0.45
_FLOAT, _INT64 = ir.DataType.FLOAT, ir.DataType.INT64


@dataclass(frozen=True)
class Settings:
    """Liu et al. (2016), SSD300 on VGG-16 for PASCAL VOC: sections 2 and 3.1, batch 8 as in its table 7.

    Departures: the best `keep` boxes are of the whole batch, not of each image; weights are random.
    """

    divisor: int = 1
    """Factor on all channels."""
    batch: int = 8
    classes: int = 20
    keep: int = 200
    score: float = 0.01


class Ssd(nn.Module):
    """`image [B, 3, 300, 300]` to `corners [B, 8732, 4]` and `scores [B, C, 8732]`; the background has no score."""

    priors: Tensor

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.classes = settings.classes
        c64, c128, c256, c512, c1024 = (channels // settings.divisor for channels in (64, 128, 256, 512, 1024))
        pool, same = nn.MaxPool2d(2, ceil_mode=True), nn.MaxPool2d(3, 1, 1)
        self.backbone = nn.ModuleList(
            (
                nn.Sequential(
                    *(*_convolutions(3, c64, 2), pool, *_convolutions(c64, c128, 2), pool),
                    *(*_convolutions(c128, c256, 3), pool, *_convolutions(c256, c512, 3)),
                ),
                nn.Sequential(
                    *(pool, *_convolutions(c512, c512, 3), same),
                    *(
                        nn.Conv2d(c512, c1024, 3, padding=6, dilation=6),
                        nn.ReLU(),
                        nn.Conv2d(c1024, c1024, 1),
                        nn.ReLU(),
                    ),
                ),
                _extra(c1024, c256, 2),
                _extra(c512, c128, 2),
                _extra(c256, c128, 1),
                _extra(c256, c128, 1),
            )
        )
        channels = (c512, c1024, c512, c256, c256, c256)
        shapes = [2 + 2 * len(ratios) for ratios in _RATIOS]
        self.scale = nn.Parameter(torch.full((1, c512, 1, 1), 20 * (c512 / 512) ** 0.5))
        self.boxes = nn.ModuleList(
            nn.Conv2d(width, 4 * number, 3, padding=1) for width, number in zip(channels, shapes, strict=True)
        )
        self.scores = nn.ModuleList(
            nn.Conv2d(width, (1 + settings.classes) * number, 3, padding=1)
            for width, number in zip(channels, shapes, strict=True)
        )
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight)
        self.register_buffer("priors", _priors())

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Corners of the boxes as fractions of the image, and the probability of each class."""
        x, offsets, logits = image, [], []
        for index, grid in enumerate(self.backbone):
            x = grid(x)
            seen = nn.functional.normalize(x) * self.scale if index == 0 else x
            offsets.append(self.boxes[index](seen).permute(0, 2, 3, 1).reshape(len(x), -1, 4))
            logits.append(self.scores[index](seen).permute(0, 2, 3, 1).reshape(len(x), -1, 1 + self.classes))
        offset = torch.cat(offsets, 1)
        centre = self.priors[:, :2] + 0.1 * offset[..., :2].tanh() * self.priors[:, 2:]
        size = self.priors[:, 2:] * torch.exp(0.2 * offset[..., 2:].tanh())
        probability = torch.cat(logits, 1).softmax(-1)[..., 1:].transpose(1, 2)
        return torch.cat((centre - size / 2, centre + size / 2), -1), probability


def _convolutions(inputs: int, outputs: int, number: int) -> list[nn.Module]:
    widths = [inputs, *[outputs] * number]
    pairs = itertools.pairwise(widths)
    return [layer for a, b in pairs for layer in (nn.Conv2d(a, b, 3, padding=1), nn.ReLU())]


def _extra(inputs: int, middle: int, stride: int) -> nn.Sequential:
    second = nn.Conv2d(middle, 2 * middle, 3, stride, padding=stride - 1)
    return nn.Sequential(nn.Conv2d(inputs, middle, 1), nn.ReLU(), second, nn.ReLU())


def _priors() -> Tensor:
    """`[8732, 4]` default boxes, centre and size: section 2.2."""
    rows = []
    for grid, ratios, size, larger in zip(_GRIDS, _RATIOS, _SIZES[:-1], _SIZES[1:], strict=True):
        sides = [(size, size), (math.sqrt(size * larger), math.sqrt(size * larger))]
        for ratio in ratios:
            wide, narrow = size * math.sqrt(ratio), size / math.sqrt(ratio)
            sides += [(wide, narrow), (narrow, wide)]
        for i, j in itertools.product(range(grid), repeat=2):
            rows += [((j + 0.5) / grid, (i + 0.5) / grid, w / _IMAGE, h / _IMAGE) for w, h in sides]
    return torch.tensor(rows)


def suppressed(corners: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """`[K, 3]` image, class, box: the best box of a class, without those that overlap it, then the next, and so on."""
    rows = []
    for image, kind in itertools.product(range(scores.shape[0]), range(scores.shape[1])):
        of_class, boxes = scores[image, kind], corners[image]
        order = of_class.argsort(descending=True, stable=True)
        order = order[of_class[order] > threshold]
        taken = 0
        while len(order) and taken < _CANDIDATES:
            best, order = order[0], order[1:]
            rows.append((image, kind, int(best)))
            taken += 1
            order = order[_overlap(boxes[best], boxes[order]) <= _OVERLAP]
    return torch.tensor(rows).reshape(-1, 3)


def _overlap(box: Tensor, others: Tensor) -> Tensor:
    """Intersection over union."""
    inner = (torch.minimum(box[2:], others[:, 2:]) - torch.maximum(box[:2], others[:, :2])).clamp(0).prod(1)
    area = (box[2:] - box[:2]).prod()
    return inner / (area + (others[:, 2:] - others[:, :2]).prod(1) - inner)


def _make(settings: Settings) -> OnnxNetwork:
    module = Ssd(settings).eval()
    image = torch.randn(settings.batch, 3, _IMAGE, _IMAGE)
    model = export_module(module, {"image": image}, ("corners", "scores"))
    _append_selection(model, settings)

    def reference(inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        with torch.no_grad():
            corners, scores = module(torch.from_numpy(inputs["image"]))
        chosen = suppressed(corners, scores, settings.score)
        best, order = scores[chosen.unbind(1)].topk(min(settings.keep, len(chosen)))
        images, classes, boxes = chosen[order].unbind(1)
        return [value.numpy() for value in (corners[images, boxes], best, classes, images)]

    return OnnxNetwork(model, {"image": image.numpy()}, reference, by_object)


def by_object(outputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Objects by image, class and place instead of by scores, some of which differ by rounding alone; scores stay as they are."""
    boxes, best, classes, images = outputs
    order = np.lexsort((boxes[:, 0], classes, images))
    return [boxes[order], best, classes[order], images[order]]


def _append_selection(model: ir.Model, settings: Settings) -> None:
    """Non-maximum suppression and the best of what is left, in place of the model's outputs."""
    writer = GraphWriter.after(model.graph)
    corners, scores = model.graph.outputs
    at = "selection"
    chosen = writer.op(
        "NonMaxSuppression", corners, scores, writer.constant(_CANDIDATES),
        writer.constant(_OVERLAP, torch.float32), writer.constant(settings.score, torch.float32), at=at,
    )  # fmt: skip
    found = writer.op("GatherND", scores, chosen, at=at)
    number = writer.op("Min", writer.op("Shape", found, at=at), writer.constant((settings.keep,)), at=at)
    best, order = writer.ops("TopK", found, number, at=at, outputs=2)
    kept = writer.op("Gather", chosen, order, at=at)
    places = writer.op("Gather", kept, writer.constant((0, 2)), at=at, axis=1)
    boxes = writer.op("GatherND", corners, places, at=at)
    classes = writer.op("Gather", kept, writer.constant(1), at=at, axis=1)
    images = writer.op("Gather", kept, writer.constant(0), at=at, axis=1)
    boxes.name, best.name, classes.name, images.name = "boxes", "best", "classes", "images"
    model.graph.extend(writer.nodes)
    for value in writer.weights.values():
        model.graph.register_initializer(value)
    model.graph.outputs[:] = [
        typed(boxes, _FLOAT, ("objects", 4)),
        typed(best, _FLOAT, ("objects",)),
        typed(classes, _INT64, ("objects",)),
        typed(images, _INT64, ("objects",)),
    ]


RECIPES = (
    Recipe(
        name="ssd_300",
        summary="single-shot detector with non-maximum suppression",
        make=_make,
        settings=Settings(),
        small=Settings(divisor=16, batch=2, classes=3, keep=20),
        source="Liu et al. 2016 (SSD), sections 2 and 3.1",
        stages=StageRule(
            (
                (r"backbone\.(\d+)\.", r"\1"),
                (r"scale", 0),
                (r"(?:boxes|scores)\.(\d+)\.", r"\1"),
                (r"selection\.", len(_GRIDS) - 1),
            )
        ),
    ),
)

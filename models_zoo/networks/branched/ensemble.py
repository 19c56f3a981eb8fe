"""Deep ensembles: members of the same architecture that see the same input, and whose probabilities are averaged."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models_zoo.networks.recipe import Recipe, StageRule, TorchNetwork


@dataclass(frozen=True)
class ImageSettings:
    """Convolutional members: Lakshminarayanan et al. (2017), section 3.4, on images of SVHN.

    The paper names the members "VGG-style" with batch normalisation and gives no widths; these are three blocks of two
    convolutions that double in width. Dropout is 0.
    """

    members: int = 8
    width: int = 64
    """Channels of the first block."""
    blocks: int = 3
    image: int = 32
    classes: int = 10
    batch: int = 100


@dataclass(frozen=True)
class VectorSettings:
    """Fully connected members: Lakshminarayanan et al. (2017), section 3.4, on images of MNIST."""

    members: int = 15
    width: int = 200
    layers: int = 3
    inputs: int = 784
    classes: int = 10
    batch: int = 100


class Ensemble(nn.Module):
    """`x [B, ...]` to the average `probabilities [B, C]` and each member's `logits [K, B, C]`."""

    def __init__(self, members: list[nn.Sequential]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Every member on the whole batch."""
        logits = torch.stack([member(x) for member in self.members])
        return logits.softmax(-1).mean(0), logits


def _image_member(settings: ImageSettings) -> nn.Sequential:
    parts: list[nn.Module] = []
    before = 3
    for block in range(settings.blocks):
        width = settings.width << block
        for _ in range(2):
            parts += [nn.Conv2d(before, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
            before = width
        parts.append(nn.MaxPool2d(2))
    side = settings.image >> settings.blocks
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(before * side * side, settings.classes))


def _vector_member(settings: VectorSettings) -> nn.Sequential:
    parts: list[nn.Module] = []
    before = settings.inputs
    for _ in range(settings.layers):
        parts += [nn.Linear(before, settings.width, bias=False), nn.BatchNorm1d(settings.width), nn.ReLU()]
        before = settings.width
    return nn.Sequential(*parts, nn.Linear(before, settings.classes))


def _loss(found: tuple[Tensor, Tensor], classes: Tensor) -> Tensor:
    """The members' own losses, summed: each learns as if it were alone, as in the paper."""
    logits = found[1]
    each = nn.functional.cross_entropy(logits.flatten(0, 1), classes.repeat(len(logits)))
    return each * len(logits)


def _network(members: list[nn.Sequential], x: Tensor, classes: int) -> TorchNetwork:
    return TorchNetwork(
        Ensemble(members),
        inputs={"x": x},
        outputs=("probabilities", "logits"),
        targets={"classes": torch.randint(classes, (len(x),))},
        loss=_loss,
        optimizer="adam",
    )


def _make_image(settings: ImageSettings) -> TorchNetwork:
    x = torch.randn(settings.batch, 3, settings.image, settings.image)
    return _network([_image_member(settings) for _ in range(settings.members)], x, settings.classes)


def _make_vector(settings: VectorSettings) -> TorchNetwork:
    x = torch.rand(settings.batch, settings.inputs)
    return _network([_vector_member(settings) for _ in range(settings.members)], x, settings.classes)


_STAGES = StageRule(((r"members\.(\d+)\.", r"\1"),))
_SOURCE = "Lakshminarayanan et al. 2017, section 3.4"

RECIPES = (
    Recipe(
        name="ensemble_cnn",
        summary="8 convolutional networks that are averaged",
        make=_make_image,
        settings=ImageSettings(),
        small=ImageSettings(members=3, width=4, blocks=2, image=8, classes=5, batch=4),
        source=_SOURCE,
        trains=True,
        stages=_STAGES,
    ),
    Recipe(
        name="ensemble_mlp",
        summary="15 fully connected networks that are averaged",
        make=_make_vector,
        settings=VectorSettings(),
        small=VectorSettings(members=3, width=8, inputs=12, classes=5, batch=4),
        source=_SOURCE,
        trains=True,
        stages=_STAGES,
    ),
)

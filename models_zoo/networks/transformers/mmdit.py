"""MM-DiT: a diffusion transformer in which image and text have weights of their own and attend together."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models_zoo.networks.recipe import Recipe, StageRule, TorchNetwork


@dataclass(frozen=True)
class Settings:
    """Esser et al. (2024), section 4 and figure 2; width is 64 times the depth, as in the paper.

    Departure: depth 12 instead of 15 to 38; the batch is one image.
    """

    depth: int = 12
    width: int = 768
    heads: int = 12
    patches: int = 1024
    text: int = 154
    channels: int = 64
    """Values of a patch of 2 by 2 latents with 16 channels."""
    batch: int = 1


class Stream(nn.Module):
    """The weights of one modality in a block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.projected, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def project(self, tokens: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        """Queries, keys and values `[B, T, 3 W]`, and the six modulations `[6, B, 1, W]`."""
        modulation = self.modulation(condition).unsqueeze(1).chunk(6, -1)
        projected: Tensor = self.projected(self.norm(tokens) * (1 + modulation[1]) + modulation[0])
        return projected, torch.stack(modulation)

    def finish(self, tokens: Tensor, attended: Tensor, modulation: Tensor) -> Tensor:
        """The tokens `[B, T, W]` after attention and feed-forward."""
        tokens = tokens + modulation[2] * self.output(attended)
        found: Tensor = self.feed_forward(self.norm(tokens) * (1 + modulation[4]) + modulation[3])
        return tokens + modulation[5] * found


class Block(nn.Module):
    """Two streams that attend together."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.heads, self.image, self.text = settings.heads, Stream(settings.width), Stream(settings.width)

    def forward(self, image: Tensor, text: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        """Both streams, updated."""
        of_image, image_modulation = self.image.project(image, condition)
        of_text, text_modulation = self.text.project(text, condition)
        both = torch.cat([of_text, of_image], 1)
        batch, length, _ = both.shape
        query, key, value = both.view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        count = text.shape[1]
        return (
            self.image.finish(image, attended[:, count:], image_modulation),
            self.text.finish(text, attended[:, :count], text_modulation),
        )


class DiffusionTransformer(nn.Module):
    """`patches [B, N, C]`, `words [B, T, W]` and `condition [B, W]` to `velocity [B, N, C]`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.embed = nn.Linear(settings.channels, settings.width)
        self.blocks = nn.ModuleList(Block(settings) for _ in range(settings.depth))
        self.head = nn.Sequential(nn.LayerNorm(settings.width), nn.Linear(settings.width, settings.channels))

    def forward(self, patches: Tensor, words: Tensor, condition: Tensor) -> Tensor:
        """The velocity of every patch."""
        image, text = self.embed(patches), words
        for block in self.blocks:
            image, text = block(image, text, condition)
        velocity: Tensor = self.head(image)
        return velocity


def _make(settings: Settings) -> TorchNetwork:
    return TorchNetwork(
        DiffusionTransformer(settings),
        inputs={
            "patches": torch.randn(settings.batch, settings.patches, settings.channels),
            "words": torch.randn(settings.batch, settings.text, settings.width),
            "condition": torch.randn(settings.batch, settings.width),
        },
        outputs=("velocity",),
    )


RECIPES = (
    Recipe(
        name="mmdit",
        summary="diffusion transformer with streams of image and text",
        make=_make,
        settings=Settings(),
        small=Settings(depth=2, width=8, heads=2, patches=6, text=4, channels=4),
        source="Esser et al. 2024, section 4",
        stages=StageRule(((r"embed\.", 0), (r"blocks\.(\d+)\.", r"\1"), (r"head\.", "last"))),
    ),
)

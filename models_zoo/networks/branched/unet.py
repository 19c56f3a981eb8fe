"""The denoising network of a latent diffusion model: a U-Net that attends to a text."""

from dataclasses import dataclass
from typing import Any

import torch
from diffusers import UNet2DConditionModel
from torch import Tensor, nn

from models_zoo.networks.recipe import Recipe, StageRule, TorchNetwork

_DOUBLINGS = (1, 2, 4, 4)
_HEADS = 8
_TIMESTEPS = 1000


@dataclass(frozen=True)
class Settings:
    """Rombach et al. (2022), in the shape of Stable Diffusion 1, whose deepest blocks do not attend.

    Departure: 192 channels where Stable Diffusion has 320, so all widths are 0.6 of its own and 314 million parameters
    stay of 860 million. Depth, heads, latents and text are its own. The batch is one image with and without its text,
    as classifier-free guidance needs it.
    """

    channels: int = 192
    """Channels of the first level; the deeper levels have 2, 4 and 4 times as many."""
    levels: int = 4
    blocks: int = 2
    """Residual blocks of a level on the way down; one more on the way up."""
    norm_groups: int = 32
    latent: int = 64
    """Height and width, an eighth of the image's."""
    text: int = 77
    text_width: int = 768
    batch: int = 2


class Denoiser(nn.Module):
    """`latents [B, 4, H, W]`, `timesteps [B]` and `text [B, T, D]` to `noise [B, 4, H, W]`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        attending = settings.levels - 1
        self.unet: Any = UNet2DConditionModel(
            sample_size=settings.latent,
            block_out_channels=tuple(settings.channels * times for times in _DOUBLINGS[: settings.levels]),
            down_block_types=("CrossAttnDownBlock2D",) * attending + ("DownBlock2D",),
            up_block_types=("UpBlock2D",) + ("CrossAttnUpBlock2D",) * attending,
            layers_per_block=settings.blocks,
            norm_num_groups=settings.norm_groups,
            cross_attention_dim=settings.text_width,
            attention_head_dim=_HEADS,  # the number of heads: diffusers keeps the name that its first release gave it
        )

    def forward(self, latents: Tensor, timesteps: Tensor, text: Tensor) -> Tensor:
        """The noise in the latents."""
        noise: Tensor = self.unet(latents, timesteps, text, return_dict=False)[0]
        return noise


def _make(settings: Settings) -> TorchNetwork:
    return TorchNetwork(
        Denoiser(settings),
        inputs={
            "latents": torch.randn(settings.batch, 4, settings.latent, settings.latent),
            "timesteps": torch.randint(_TIMESTEPS, (1,)).repeat(settings.batch),
            "text": torch.randn(settings.batch, settings.text, settings.text_width),
        },
        outputs=("noise",),
    )


def _stages(levels: int) -> StageRule:
    """Down, through the middle and up again; what ends the network is with its last block."""
    down = tuple((rf"unet\.down_blocks\.{level}\.", level) for level in range(levels))
    up = tuple((rf"unet\.up_blocks\.{level}\.", levels + 1 + level) for level in range(levels))
    return StageRule(
        (
            *down,
            (r"unet\.mid_block\.", levels),
            *up,
            (r"unet\.(conv_in|time_)", 0),
            (r"unet\.conv_(norm_)?(out|act)", 2 * levels),
        )
    )


RECIPES = (
    Recipe(
        name="unet_diffusion",
        summary="U-Net of a latent diffusion model, with attention to a text",
        make=_make,
        settings=Settings(),
        small=Settings(channels=8, levels=2, blocks=1, norm_groups=4, latent=8, text=5, text_width=12),
        source="Rombach et al. 2022, section 3.3; configuration of Stable Diffusion 1",
        stages=_stages(len(_DOUBLINGS)),
    ),
)

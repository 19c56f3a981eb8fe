"""Evoformer: two representations of a protein, of sequences and of pairs, that update each other."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models_zoo.networks.recipe import Recipe, StageRule, TorchNetwork


@dataclass(frozen=True)
class Settings:
    """Jumper et al. (2021), supplement 1.6, algorithm 6, at its widths.

    Departures: 4 blocks instead of 48, crops of 128 residues and 64 sequences, and no dropout.
    """

    blocks: int = 4
    sequences: int = 64
    residues: int = 128
    sequence_width: int = 256
    pair_width: int = 128
    heads: int = 8
    pair_heads: int = 4
    outer: int = 32
    """Width of the outer product mean."""


class GatedAttention(nn.Module):
    """Attention along the last but one dimension, with a bias from pairs and a gate (algorithms 7, 8, 13 and 14)."""

    def __init__(self, width: int, heads: int, pair_width: int | None) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.projected = nn.LayerNorm(width), nn.Linear(width, 3 * width, bias=False)
        self.gate, self.output = nn.Linear(width, width), nn.Linear(width, width)
        self.bias = None if pair_width is None else nn.Linear(pair_width, heads, bias=False)

    def forward(self, values: Tensor, pairs: Tensor | None = None) -> Tensor:
        """`[R, L, W]` to the same shape; `pairs` is `[L, L, P]`."""
        rows, length, width = values.shape
        normed = self.norm(values)
        query, key, value = self.projected(normed).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        bias = self.bias(pairs).permute(2, 0, 1) if self.bias is not None and pairs is not None else None
        attended = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        found = attended.transpose(1, 2).reshape(rows, length, width)
        result: Tensor = self.output(torch.sigmoid(self.gate(normed)) * found)
        return result


class TriangleProduct(nn.Module):
    """Updates an edge from the two other edges of all triangles (algorithms 11 and 12)."""

    def __init__(self, width: int, outgoing: bool) -> None:
        super().__init__()
        self.equation = "ikc,jkc->ijc" if outgoing else "kic,kjc->ijc"
        self.norm, self.output_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.left, self.left_gate = nn.Linear(width, width), nn.Linear(width, width)
        self.right, self.right_gate = nn.Linear(width, width), nn.Linear(width, width)
        self.gate, self.output = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, pairs: Tensor) -> Tensor:
        """`[L, L, P]` to the same shape."""
        normed = self.norm(pairs)
        left = torch.sigmoid(self.left_gate(normed)) * self.left(normed)
        right = torch.sigmoid(self.right_gate(normed)) * self.right(normed)
        found = torch.einsum(self.equation, left, right)
        result: Tensor = torch.sigmoid(self.gate(normed)) * self.output(self.output_norm(found))
        return result


class OuterProductMean(nn.Module):
    """Pairs from sequences (algorithm 10)."""

    def __init__(self, width: int, outer: int, pair_width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.left, self.right = nn.Linear(width, outer), nn.Linear(width, outer)
        self.output = nn.Linear(outer * outer, pair_width)

    def forward(self, sequences: Tensor) -> Tensor:
        """`[S, L, W]` to `[L, L, P]`."""
        normed = self.norm(sequences)
        product = torch.einsum("sic,sjd->ijcd", self.left(normed), self.right(normed)) / sequences.shape[0]
        result: Tensor = self.output(product.flatten(2))
        return result


def _transition(width: int) -> nn.Sequential:
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))


class EvoformerBlock(nn.Module):
    """One block (algorithm 6)."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        width, pairs = settings.sequence_width, settings.pair_width
        self.rows = GatedAttention(width, settings.heads, pairs)
        self.columns = GatedAttention(width, settings.heads, None)
        self.sequence_transition, self.pair_transition = _transition(width), _transition(pairs)
        self.outer = OuterProductMean(width, settings.outer, pairs)
        self.outgoing, self.incoming = TriangleProduct(pairs, True), TriangleProduct(pairs, False)
        self.starting = GatedAttention(pairs, settings.pair_heads, pairs)
        self.ending = GatedAttention(pairs, settings.pair_heads, pairs)

    def forward(self, sequences: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
        """Both representations, updated."""
        sequences = sequences + self.rows(sequences, pairs)
        sequences = sequences + self.columns(sequences.transpose(0, 1)).transpose(0, 1)
        sequences = sequences + self.sequence_transition(sequences)
        pairs = pairs + self.outer(sequences)
        pairs = pairs + self.outgoing(pairs)
        pairs = pairs + self.incoming(pairs)
        pairs = pairs + self.starting(pairs, pairs)
        turned = pairs.transpose(0, 1)
        pairs = pairs + self.ending(turned, turned).transpose(0, 1)
        return sequences, pairs + self.pair_transition(pairs)


class Evoformer(nn.Module):
    """`sequences [S, L, W]` and `pairs [L, L, P]` to the same."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(EvoformerBlock(settings) for _ in range(settings.blocks))

    def forward(self, sequences: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
        """Both representations after all blocks."""
        for block in self.blocks:
            sequences, pairs = block(sequences, pairs)
        return sequences, pairs


def _make(settings: Settings) -> TorchNetwork:
    return TorchNetwork(
        Evoformer(settings),
        inputs={
            "sequences": torch.randn(settings.sequences, settings.residues, settings.sequence_width),
            "pairs": torch.randn(settings.residues, settings.residues, settings.pair_width),
        },
        outputs=("updated_sequences", "updated_pairs"),
    )


RECIPES = (
    Recipe(
        name="evoformer",
        summary="four blocks of AlphaFold's Evoformer",
        make=_make,
        settings=Settings(),
        small=Settings(
            blocks=1, sequences=3, residues=5, sequence_width=8, pair_width=8, heads=2, pair_heads=2, outer=4
        ),
        source="Jumper et al. 2021, supplement 1.6",
        stages=StageRule(((r"blocks\.(\d+)\.", r"\1"),)),
    ),
)

"""Models that two cores run faster than one, and what is compared on them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEVICES", "EVALUATIONS", "MODELS", "PLANNERS", "SEEDS", "Run"]

DEVICES = "cpu:0,cpu:1"
MODELS = (
    "ensemble_cnn:batch=2",
    "cifar_cell_00:batch=8",
    "nasnet_mobile:batch=2",
    "nmt_2:batch=16:hidden=512:steps=6:vocabulary=4000",
)
"""Of the zoo, with batches so small that an execution takes about a tenth of a second or less on one core."""
PLANNERS = ("gnn", "annealing", "placeto", "coloc-rl")
EVALUATIONS = 150
SEEDS = 3


@dataclass(frozen=True)
class Run:
    """One search."""

    model: str
    planner: str
    seed: int
    evaluations: int

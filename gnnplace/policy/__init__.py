"""DGL conversion, encoder, head, checkpoints: tensors in, tensors out; never steps an environment.

Reading order: `features` (units, edges and devices in relative numbers), `pair_features` (one unit on one device, now),
`encoder` (message passing), `dgl_graph` (the same on a DGLGraph; dgl is imported nowhere else), `decisions` (the head that builds
schedules), `network` (encoder and heads), `linear` (hand-written odds and uniform odds), `pair_scores` (the head compiled, for
searches), `checkpoint` (files and names of policies).
"""

from importlib.resources import files
from pathlib import Path

__all__ = ["POLICIES", "SHIPPED_POLICY"]

POLICIES = {
    "shipped": "the trained policy of this version; it scores moves, builds schedules and revises them",
    "prior": "hand-written odds over features of the schedule, without training",
    "uniform": "every move is equally likely",
}
"""Policies that have a name, with descriptions; others are files."""

SHIPPED_POLICY = Path(str(files("models_zoo").joinpath("policies", "gnn.safetensors")))
"""The trained policy that `gnn` starts from by default; the card beside it describes its training."""

"""DGL conversion, encoder, head, checkpoints: tensors in, tensors out; never steps an environment.

Reading order: `features` (units, edges and devices in relative numbers), `pair_features` (one unit on one device, now),
`encoder` (message passing), `dgl_graph` (the same on a DGLGraph; dgl is imported nowhere else), `network` (encoder and head),
`pair_scores` (the head compiled, for searches), `checkpoint` (files).
"""

from importlib.resources import files
from pathlib import Path

__all__ = ["SHIPPED_POLICY"]

SHIPPED_POLICY = Path(str(files("models_zoo").joinpath("policies", "gnn.safetensors")))
"""The trained policy that `gnn` starts from by default; the card beside it describes its training."""

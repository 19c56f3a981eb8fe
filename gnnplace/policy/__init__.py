"""DGL conversion, encoder, head, checkpoints: tensors in, tensors out; never steps an environment.

Reading order: `features` (ops, edges and devices in relative numbers), `pair_features` (one unit on one device, now),
`encoder/` (message passing), `dgl_graph` (the same on a DGLGraph; dgl is imported nowhere else), `head` (scores per device),
`network` (all together), `pair_scores` (the head compiled, for searches), `checkpoint` (files), `shipped` (which file is shipped).
"""

__all__: list[str] = []

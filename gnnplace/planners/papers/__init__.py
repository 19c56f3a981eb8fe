"""The learned methods of the literature that the improver is compared with, one published method per file or folder.

Reading order: `learning` (what several methods share), `seq2seq` (the network of the next two), `coloc_rl`, `spotlight`,
`hierarchical` (with its two ablations), `placeto`.
"""

__all__: list[str] = []

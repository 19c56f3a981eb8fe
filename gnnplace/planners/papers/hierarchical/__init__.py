"""The hierarchical planner (Mirhoseini et al., ICLR 2018) and its two ablations.

Reading order: `networks` (embeddings of ops and groups, grouper, placer), `planner` (policies over placements, policy gradient).
"""

__all__: list[str] = []

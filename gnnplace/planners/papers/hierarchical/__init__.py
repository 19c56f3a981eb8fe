"""The hierarchical planner (Mirhoseini et al., ICLR 2018) and its two ablations.

Reading order: `networks` (embeddings of ops and groups, grouper, placer), `policies` (distributions over placements), `planner`
(learning by policy gradient).
"""

__all__: list[str] = []

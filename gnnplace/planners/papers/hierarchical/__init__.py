"""The hierarchical planner (Mirhoseini et al., ICLR 2018) and its two ablations.

Reading order: `embeddings` (what the networks see of ops and groups), `grouper`, `placer`, `policies` (both together, and what
the ablations put in their place), `planner` (learning by policy gradient), `no_grouping`, `random_grouping`.
"""

__all__: list[str] = []

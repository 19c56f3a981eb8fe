"""The sequence-to-sequence policy of `coloc-rl` and `spotlight`, which differ only in how they learn.

Reading order: `op_groups` (its input), `network` (the policy), `sampling` (placements and rewards within a budget).
"""

__all__: list[str] = []

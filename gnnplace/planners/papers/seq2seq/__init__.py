"""The sequence-to-sequence policy of `coloc-rl` and `spotlight`, which differ only in how they learn.

Reading order: `op_groups` (its input), `network` (the policy), `sampling` (a search that draws placements from it).
"""

__all__: list[str] = []

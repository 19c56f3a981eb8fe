"""What the sequence-to-sequence planners share: `coloc-rl` and `spotlight` differ only in how they learn.

Reading order: `op_groups` (what is placed, and how it is described), `network` (encoder and attentional decoder), `sampling`
(placements drawn from the network, measured and rewarded).
"""

__all__: list[str] = []

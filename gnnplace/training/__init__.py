"""Training of the policy: one file holds one update of the policy, another one the loop over many problems.

Reading order: `search_trace` (the moves that a search drew, with their probabilities), `search_ppo` (one PPO update from such
traces), `lessons` (decisions of better placements, to be imitated), `data_parallel` (the loop), `process_group` (its processes),
`run_state` (its checkpoint and its log).
"""

from typing import Literal

__all__ = ["Ablation"]

Ablation = Literal["no-device-features", "no-message-passing", "no-schedule-features", "final-reward"]
"""A part that a policy is trained without, to measure what it contributes."""

"""Training of the policy: one file holds one algorithm's whole loop.

Reading order: `search_trace` (the moves that a search drew, with their probabilities), `search_ppo` (one PPO update from such
traces). For one policy over many problems: `data_parallel` (the loop), `process_group` (its processes), `run_state` (its checkpoint and
its log).
"""

from typing import Literal

__all__ = ["Ablation"]

Ablation = Literal["no-device-features", "no-message-passing", "no-schedule-features", "final-reward"]
"""A part that a policy is trained without, to measure what it contributes."""

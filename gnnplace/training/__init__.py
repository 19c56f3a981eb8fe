"""One file holds one algorithm's whole loop.

Reading order: `rollout` (a batch of episodes, as tensors), `advantage` (from rewards to what an action was worth), `ppo` and
`reinforce` (the loops).
"""

__all__: list[str] = []

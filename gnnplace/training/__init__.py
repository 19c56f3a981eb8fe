"""One file holds one algorithm's whole loop.

Reading order: `rollout` (a batch of episodes, as tensors), `advantage` (from rewards to what an action was worth), `ppo` and
`reinforce` (the loops for one problem). For one policy over many problems: `problems` (what that loop is handed), `imitation` (of
exhaustive lookahead), `data_parallel` (the loop: imitation, then PPO), `process_group` (its processes), `run_state` (its file), `metrics` (its log).
"""

__all__: list[str] = []

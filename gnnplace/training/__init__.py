"""One file holds one algorithm's whole loop.

Reading order: `rollout` (a batch of episodes, as tensors), `advantage` (from rewards to what an action was worth), `ppo` and
`reinforce` (the loops for one problem). For one policy over many problems: `search_trace` (what a search asked and drew), `search_ppo`
(learning from that), `problems` (what the loop is handed), `data_parallel` (the loop), `process_group` (its processes), `run_state` (its
file), `metrics` (its log).
"""

__all__: list[str] = []

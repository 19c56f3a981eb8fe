"""One file holds one algorithm's whole loop.

Reading order: `advantage` (from rewards to what an action was worth), `search_trace` (what a search asked and drew), `search_ppo`
(learning from that). For one policy over many problems: `problems` (what the loop is handed), `data_parallel` (the loop),
`process_group` (its processes), `run_state` (its file), `metrics` (its log), `ablation` (what can be left out).
"""

__all__: list[str] = []

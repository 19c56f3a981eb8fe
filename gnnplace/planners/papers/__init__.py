"""The GNN improver and the learned methods it is compared with.

Reading order: `gnn` (the planner and its stages), `policy_search` (what the stages share), then the stages: `constructions`
(starts), `revisit/` (a local search that the policy guides; `search_episode`: the same to learn from), `fine_tuning`
(learning from it on this graph), `walk` (a compiled one); `multilevel` (large graphs, level by level); `measured` (few executions after all that). The methods it is
compared with: `relative_runtime` (what ran, and rewards), `unit_edges` and `moving_average` (baselines), which they share;
`seq2seq` (the network of the next two), `coloc_rl`, `spotlight`; `hierarchical` (with its two ablations), `placeto`.
"""

__all__: list[str] = []

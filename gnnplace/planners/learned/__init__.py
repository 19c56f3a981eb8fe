"""The GNN improver and the learned methods it is compared with.

Reading order: `gnn` (the planner and its stages), `policy_search` (what the stages share), then the stages: `constructions`
(starts), `episodes` (rollouts and PPO on this graph), `revisit` (a local search that the policy guides).
"""

__all__: list[str] = []

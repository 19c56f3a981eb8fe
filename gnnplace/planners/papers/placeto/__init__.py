"""Placeto (Addanki et al., NeurIPS 2019): a graph network revisits op groups one by one and may move each.

Reading order: `features` (pooling sets, node features), `network`, `episodes` (rollouts, and the log probabilities of their actions),
`planner` (REINFORCE on one graph).
"""

__all__: list[str] = []

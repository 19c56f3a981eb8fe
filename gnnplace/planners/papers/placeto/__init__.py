"""Placeto (Addanki et al., NeurIPS 2019): a graph network revisits op groups one by one and may move each.

Reading order: `reachability` (ancestors, descendants, parallel ops), `features` (what a node shows), `network`, `episodes`
(rollouts, and their decisions judged again for the gradient), `baseline`, `planner` (REINFORCE on one graph).
"""

__all__: list[str] = []

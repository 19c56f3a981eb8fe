"""Placeto (Addanki et al., NeurIPS 2019): a graph network revisits op groups one by one and may move each.

Reading order: `features` (inputs of the network), `network`, `planner` (episodes on one graph, and REINFORCE).
"""

__all__: list[str] = []

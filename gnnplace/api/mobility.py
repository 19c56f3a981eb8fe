"""Why an op may not go to any device it likes, in words."""

from __future__ import annotations

from collections import Counter

import numpy as np

from gnnplace.api.problem_setup import ProblemSetup
from gnnplace.placement import allowed_mask

__all__ = ["what_holds"]


def what_holds(setting: ProblemSetup) -> list[str]:
    """`[N]` the reasons, each as a sentence; empty for an op that may go anywhere on its own."""
    graph, topology = setting.workload.graph, setting.topology
    allowed = allowed_mask(graph, topology)
    runs = np.isfinite(setting.op_time_s)
    groups, colocated = setting.coarsening.group_of_op.tolist(), graph.colocation.tolist()
    group_sizes, colocated_sizes = Counter(groups), Counter(colocated)
    weights = graph.memory_bytes + graph.workspace_bytes
    names = topology.device_names
    texts = []
    for op in range(graph.num_ops):
        reasons = []
        if not allowed[op].all():
            reasons.append(f"The model allows only {_listed(names, allowed[op])}.")
        if (allowed[op] & ~runs[op]).any():
            reasons.append(f"Only {_listed(names, allowed[op] & runs[op])} can run it.")
        full = [device.name for device in topology.devices if device.memory_bytes is not None and weights[op] > device.memory_bytes]  # fmt: skip
        if full:
            reasons.append(f"It needs more memory than {', '.join(full)} has.")
        if colocated[op] >= 0 and colocated_sizes[colocated[op]] > 1:
            reasons.append(f"It shares a device with {colocated_sizes[colocated[op]] - 1} others of {graph.colocation_names[colocated[op]]!r}.")  # fmt: skip
        if group_sizes[groups[op]] > 1:
            reasons.append(f"It moves with the {group_sizes[groups[op]] - 1} others of its group.")
        texts.append(" ".join(reasons))
    return texts


def _listed(names: tuple[str, ...], chosen: np.ndarray) -> str:
    return ", ".join(name for name, is_chosen in zip(names, chosen.tolist(), strict=True) if is_chosen) or "no device"

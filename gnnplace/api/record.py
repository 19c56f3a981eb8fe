"""The parts of `run.json` that are computed: ops, edges, transfers, search steps, and why an op may not move."""

from __future__ import annotations

from collections import Counter

import numpy as np

from gnnplace.api.problem_setup import ProblemSetup
from gnnplace.arrays import BoolArray
from gnnplace.devices.topology import Topology
from gnnplace.evaluation import Problem
from gnnplace.graph.op_graph import OpGraph
from gnnplace.placement import Placement, allowed_mask
from gnnplace.planners.search import Solution
from gnnplace.run_record import OpsRecord, StepRecord, TransferRecord, finite
from gnnplace.schedule import Schedule

__all__ = ["edges_record", "ops_record", "steps_record", "transfers_record"]

_MAX_SHAPE_TEXT = 300
"""Characters of an op's shapes in the record."""
_MAX_NAMED_OPS = 20
"""Ops of a search step that the record names; it always has their number."""


def ops_record(setup: ProblemSetup, own: ProblemSetup, placement: Placement, schedule: Schedule) -> OpsRecord:
    """The ops, column by column; `own` is the setup that the planner got."""
    graph = setup.workload.graph
    return {
        "name": list(graph.op_names),
        "type": list(graph.op_types),
        "device": placement.assignment.tolist(),
        "group": setup.coarsening.group_of_op.tolist(),
        "start_s": schedule.start_s.tolist(),
        "end_s": schedule.end_s.tolist(),
        "memory_bytes": graph.memory_bytes.tolist(),
        "shapes": [_shapes(signature) for signature in graph.signatures],
        "cost_s": [[finite(seconds) for seconds in row] for row in setup.op_time_s.tolist()],
        "held": _obstacles(own),
    }


def _shapes(signature: str) -> str:
    """`float32[1,8] -> float32[1,8]` of `ai.onnx::Relu(float32[1,8])->(float32[1,8]){}`; empty for an op without shapes."""
    _, bracket, rest = signature.partition("(")
    inputs, arrow, rest = rest.partition(")->(")
    outputs = rest.partition("){")[0]
    text = f"{inputs} -> {outputs}" if bracket and arrow else ""
    return text if len(text) <= _MAX_SHAPE_TEXT else f"{text[:_MAX_SHAPE_TEXT]}…"


def edges_record(graph: OpGraph) -> list[tuple[int, int, int]]:
    """Producer, consumer and bytes of every edge."""
    producers, consumers = graph.edges
    sizes = graph.tensor_bytes[graph.consumer_tensor]
    return list(zip(producers.tolist(), consumers.tolist(), sizes.tolist(), strict=True))


def transfers_record(graph: OpGraph, topology: Topology, schedule: Schedule) -> list[TransferRecord]:
    """The transfers of a schedule."""
    return [
        {
            "tensor": graph.op_names[graph.tensor_producer[tensor]],
            "source": topology.device_index[topology.links[link].source],
            "target": topology.device_index[topology.links[link].target],
            "start_s": float(start),
            "end_s": float(end),
            "bytes": int(graph.tensor_bytes[tensor]),
            "channel": topology.links[link].channel,
        }
        for tensor, link, start, end in zip(
            schedule.transfer_tensor,
            schedule.transfer_link,
            schedule.transfer_start_s,
            schedule.transfer_end_s,
            strict=True,
        )
    ]


def steps_record(problem: Problem, solution: Solution) -> list[StepRecord]:
    """The steps of the policy, with the first op of each unit that moved."""
    names = problem.graph.op_names
    return [
        {
            "evaluations": step.evaluations,
            "kind": step.kind,
            "before_s": finite(step.before_s),
            "after_s": finite(step.after_s),
            "moved": len(step.units),
            "moves": [
                (names[int(np.flatnonzero(problem.unit_of_op == unit)[0])], source, target)
                for unit, source, target in zip(
                    step.units[:_MAX_NAMED_OPS].tolist(), step.sources.tolist(), step.targets.tolist(), strict=False
                )
            ],
            "probability": step.probability,
            "chance": step.chance,
        }
        for step in solution.steps
    ]


def _obstacles(setup: ProblemSetup) -> list[str]:
    """`[N]` sentences that say why an op may not go to some devices, or not alone; empty for a free op."""
    graph, topology = setup.workload.graph, setup.topology
    allowed = allowed_mask(graph, topology)
    runs = np.isfinite(setup.op_time_s)
    groups, colocated = setup.coarsening.group_of_op.tolist(), graph.colocation.tolist()
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
        full = [
            device.name
            for device in topology.devices
            if device.memory_bytes is not None and weights[op] > device.memory_bytes
        ]
        if full:
            reasons.append(f"It needs more memory than {', '.join(full)} has.")
        if colocated[op] >= 0 and colocated_sizes[colocated[op]] > 1:
            others, name = colocated_sizes[colocated[op]] - 1, graph.colocation_names[colocated[op]]
            reasons.append(f"It shares a device with {others} others of {name!r}.")
        if group_sizes[groups[op]] > 1:
            reasons.append(f"It moves with the {group_sizes[groups[op]] - 1} others of its group.")
        texts.append(" ".join(reasons))
    return texts


def _listed(names: tuple[str, ...], chosen: BoolArray) -> str:
    return ", ".join(name for name, is_chosen in zip(names, chosen.tolist(), strict=True) if is_chosen) or "no device"

"""The computed parts of `run.json`: ops, edges, transfers, the critical path, memory over time, and search steps."""

import math
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, groupby, islice
from typing import Literal

import numpy as np

from gnnplace.api.problem_setup import ProblemSetup
from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.devices.topology import Topology
from gnnplace.difference import Difference
from gnnplace.evaluation import Problem
from gnnplace.graph.op_graph import OpGraph
from gnnplace.placement import Placement, allowed_mask
from gnnplace.planners.solution import Change, Solution
from gnnplace.run_record import ExecutedStepRecord, Link, OpsRecord, StepRecord, TransferRecord, finite
from gnnplace.schedule import Schedule, memory_changes

_MAX_SHAPE_TEXT = 300
"""Characters of an op's shapes in the record."""
_MAX_NAMED_OPS = 20
"""Number of moved ops that the record names per search step."""
_MAX_LEVELS = 2000
"""Number of memory levels per device; longer curves keep the peak of each of this number of intervals."""


def ops_record(setup: ProblemSetup, own: ProblemSetup, placement: Placement, schedule: Schedule) -> OpsRecord:
    """The ops, column by column; `own` is the setup of the planner."""
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
    text = f"{inputs} -> {rest.partition('){')[0]}" if bracket and arrow else ""
    return text if len(text) <= _MAX_SHAPE_TEXT else f"{text[:_MAX_SHAPE_TEXT]}…"


def _obstacles(setup: ProblemSetup) -> list[str]:
    """`[N]` the reasons why an op cannot move to some devices, or not alone; empty if there is none."""
    graph, devices = setup.workload.graph, setup.topology.devices
    allowed, runs = allowed_mask(graph, setup.topology), np.isfinite(setup.op_time_s)
    groups, colocated = setup.coarsening.group_of_op.tolist(), graph.colocation.tolist()
    group_sizes, colocated_sizes = Counter(groups), Counter(colocated)
    weights = graph.memory_bytes + graph.workspace_bytes

    def listed(chosen: BoolArray) -> str:
        return ", ".join(device.name for device, is_chosen in zip(devices, chosen, strict=True) if is_chosen)

    texts = []
    for op in range(graph.num_ops):
        reasons = []
        if not allowed[op].all():
            reasons.append(f"The model allows only {listed(allowed[op]) or 'no device'}.")
        if (allowed[op] & ~runs[op]).any():
            reasons.append(f"Only {listed(allowed[op] & runs[op]) or 'no device'} can run it.")
        if full := listed(weights[op] > setup.topology.memory_bytes):
            reasons.append(f"It needs more memory than {full} has.")
        if colocated[op] >= 0 and (others := colocated_sizes[colocated[op]] - 1):
            reasons.append(f"It shares a device with {others} others of {graph.colocation_names[colocated[op]]!r}.")
        if others := group_sizes[groups[op]] - 1:
            reasons.append(f"It moves with the {others} others of its group.")
        texts.append(" ".join(reasons))
    return texts


def edges_record(graph: OpGraph) -> list[tuple[int, int, int]]:
    """Producer, consumer and bytes of every edge."""
    producers, consumers = graph.edges
    sizes = graph.tensor_bytes[graph.consumer_tensor]
    return list(zip(producers.tolist(), consumers.tolist(), sizes.tolist(), strict=True))


def transfers_record(graph: OpGraph, topology: Topology, schedule: Schedule) -> list[TransferRecord]:
    """The transfers of a schedule, hop by hop."""
    columns = (schedule.transfer_tensor, schedule.transfer_link, schedule.transfer_start_s, schedule.transfer_end_s)
    return [
        {
            "tensor": graph.op_names[graph.tensor_producer[tensor]],
            "source": topology.device_index[topology.links[link].source],
            "target": topology.device_index[topology.links[link].target],
            "start_s": start_s,
            "end_s": end_s,
            "bytes": int(graph.tensor_bytes[tensor]),
            "channel": topology.links[link].channel,
        }
        for tensor, link, start_s, end_s in zip(*(column.tolist() for column in columns), strict=True)
    ]


def steps_record(problem: Problem, solution: Solution) -> list[StepRecord]:
    """The steps of the policy, with the first op of each unit that moved."""
    return [
        {
            "evaluations": step.evaluations,
            "kind": step.kind,
            "before_s": finite(step.before_s),
            "after_s": finite(step.after_s),
            "moved": len(step.change.units),
            "moves": _moves(problem, step.change),
            "probability": step.probability,
            "chance": step.chance,
        }
        for step in solution.steps
    ]


def executed_steps_record(problem: Problem, solution: Solution) -> list[ExecutedStepRecord]:
    """The executed steps, with the first op of each unit that moved."""
    return [
        {
            "evaluations": step.evaluations,
            "kind": step.kind,
            "moved": len(step.change.units),
            "moves": _moves(problem, step.change),
            "difference": None if step.difference is None else step.difference.difference,
            "difference_interval": None if step.difference is None else _finite_interval(step.difference),
            "pairs": 0 if step.difference is None else step.difference.pairs,
            "kept": step.is_kept,
        }
        for step in solution.executed_steps
    ]


def _moves(problem: Problem, change: Change) -> list[tuple[str, int, int]]:
    names, ends = problem.graph.op_names, zip(*(column.tolist() for column in change), strict=True)
    return [(names[problem.unit_ops[unit][0]], source, target) for unit, source, target in islice(ends, _MAX_NAMED_OPS)]


def _finite_interval(difference: Difference) -> tuple[float, float] | None:
    """None where too few runs give no interval."""
    low, high = difference.low, difference.high
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def critical_path(graph: OpGraph, topology: Topology, schedule: Schedule) -> list[Link]:
    """The ops and transfers that determine the makespan, in order: each one starts when the one before it ends.

    The path leads backwards from the last end. An op waits for its inputs and the op before it on its device; a transfer waits
    for its producer or the hop before it, and the transfer before it on its channel. The latest end counts; of equal ends, the
    first in this order.
    """
    end_of: dict[Literal["op", "transfer"], FloatArray] = {"op": schedule.end_s, "transfer": schedule.transfer_end_s}
    channel = topology.link_channel[schedule.transfer_link]
    previous = {
        "op": _previous(schedule.assignment, schedule.start_s, schedule.end_s),
        "transfer": _previous(channel, schedule.transfer_start_s, schedule.transfer_end_s),
    }
    links = [topology.links[link] for link in schedule.transfer_link.tolist()]
    ends = [topology.device_index[link.target] for link in links]
    hops = zip(schedule.transfer_tensor.tolist(), schedule.transfer_target.tolist(), ends, strict=True)
    row_of = {hop: row for row, hop in enumerate(hops)}  # (tensor, final device, end of this hop)

    def end_s(event: Link) -> float:
        kind, index = event
        return float(end_of[kind][index])

    def arrival(tensor: int, target: int, device: int) -> Link:
        """The hop that brings a tensor for `target` to `device`; its producer if there is none."""
        row = row_of.get((tensor, target, device))
        return ("op", int(graph.tensor_producer[tensor])) if row is None else ("transfer", row)

    def before(event: Link) -> Iterator[Link]:
        kind, index = event
        if kind == "op":
            device = int(schedule.assignment[index])
            for tensor in graph.inputs_of(index).tolist():
                yield arrival(tensor, device, device)
        else:
            tensor, target = int(schedule.transfer_tensor[index]), int(schedule.transfer_target[index])
            yield arrival(tensor, target, topology.device_index[links[index].source])
        if (last := int(previous[kind][index])) >= 0:
            yield kind, last

    latest: list[Link] = [(kind, int(np.argmax(ends_s))) for kind, ends_s in end_of.items() if len(ends_s)]
    event = max(latest, key=end_s, default=None)
    path: dict[Link, None] = {}
    while event is not None:
        path[event] = None
        # Events without duration may wait for each other in a circle.
        event = max((other for other in before(event) if other not in path), key=end_s, default=None)
    return list(path)[::-1]


def _previous(place: IntArray, start_s: FloatArray, end_s: FloatArray) -> IntArray:
    """`[N]` the event before each one in its place (device or channel); -1 for the first ones."""
    order = np.lexsort((end_s, start_s, place))
    previous = np.full(len(place), -1, dtype=np.int64)
    same = place[order[1:]] == place[order[:-1]]
    previous[order[1:][same]] = order[:-1][same]
    return previous


def memory_over_time(graph: OpGraph, topology: Topology, schedule: Schedule) -> list[list[tuple[float, int]]]:
    """Per device, (seconds, bytes from then on) at every change of its memory, in order."""
    resident, changes = memory_changes(graph, topology, schedule)
    curves = (_levels(start_bytes, several) for start_bytes, several in zip(resident, changes, strict=True))
    return [_thinned(curve, schedule.makespan_s) for curve in curves]


def _levels(start_bytes: int, changes: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """Levels after the changes of each instant; changes at infinite time never happen."""
    known = sorted(change for change in changes if np.isfinite(change[0]))
    times = [0.0, *(time for time, _ in known)]
    levels = accumulate((change for _, change in known), initial=start_bytes)
    instants = groupby(zip(times, levels, strict=True), key=lambda step: step[0])
    return [(time, list(steps)[-1][1]) for time, steps in instants]


def _thinned(curve: list[tuple[float, int]], makespan_s: float) -> list[tuple[float, int]]:
    if len(curve) <= _MAX_LEVELS or makespan_s <= 0:
        return curve
    intervals = groupby(curve, key=lambda step: int(step[0] / makespan_s * _MAX_LEVELS))
    return [(steps[0][0], max(level for _, level in steps)) for steps in (list(group) for _, group in intervals)]

"""What a plan writes to `run.json`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gnnplace.api.mobility import what_holds
from gnnplace.api.solution import finite
from gnnplace.api.timeline import critical_path, memory_over_time
from gnnplace.run_record import OpsRecord, RunRecord, StepRecord, TransferRecord
from gnnplace.versions import installed_versions

if TYPE_CHECKING:
    from gnnplace.api.plan import Plan

__all__ = ["run_record"]

_VERSIONED = ("gnnplace", "numpy", "onnx", "onnx-ir", "onnxruntime", "torch", "dgl", "numba")
_SHAPES = 300
"""Signs of an op's shapes that are kept."""
_OPS_OF_A_STEP = 20
"""That are named; how many there are is always said."""


def run_record(plan: Plan, out: Path | None = None, command: Sequence[str] | None = None) -> RunRecord:
    """All of `run.json`; `out` is where the plan is written."""
    graph, topology, schedule = plan.setup.workload.graph, plan.setup.topology, plan.schedule
    producers, consumers = graph.edges
    return {
        "format": "gnnplace.run/1",
        "summary": plan.summary(out),
        "devices": [
            {"name": device.name, "kind": device.kind, "memory_bytes": device.memory_bytes}
            for device in topology.devices
        ],
        "ops": _ops(plan),
        "edges": [
            (int(producer), int(consumer), int(size))
            for producer, consumer, size in zip(
                producers, consumers, graph.tensor_bytes[graph.consumer_tensor], strict=True
            )
        ],
        "transfers": _transfers(plan),
        "critical_path": critical_path(graph, topology, schedule),
        "memory_over_time": memory_over_time(graph, topology, schedule),
        "peak_memory_bytes": plan.peak_memory_bytes,
        "planners": list(plan.rows),
        "kept": plan.kept or plan.solution.planner,
        "history": [(count, seconds, finite(best)) for count, seconds, best in plan.solution.history],
        "stages": [(name, finite(best)) for name, best in plan.solution.stages],
        "steps": _steps(plan),
        "lower_bound": {"value_s": plan.bound.value_s, "name": plan.bound.name},
        "measured": plan.measured,
        "shapes": plan.shapes,
        "dims_objective": plan.setup.dims_objective,
        "warnings": [*plan.setup.workload.warnings, *plan.warnings],
        "command": " ".join(["gnnplace", *(sys.argv[1:] if command is None else command)]),
        "versions": installed_versions(*_VERSIONED),
    }


def _ops(plan: Plan) -> OpsRecord:
    setting, schedule = plan.setup, plan.schedule
    graph = setting.workload.graph
    return {
        "name": list(graph.op_names),
        "type": list(graph.op_types),
        "device": plan.placement.assignment.tolist(),
        "group": setting.coarsening.group_of_op.tolist(),
        "start_s": schedule.start_s.tolist(),
        "end_s": schedule.end_s.tolist(),
        "memory_bytes": graph.memory_bytes.tolist(),
        "shapes": [_shapes(signature) for signature in graph.signatures],
        "cost_s": [[finite(seconds) for seconds in row] for row in setting.op_time_s.tolist()],
        "held": what_holds(setting.for_planner(plan.solution.planner)),
    }


def _shapes(signature: str) -> str:
    """`float32[1,8] -> float32[1,8]` of `ai.onnx::Relu(float32[1,8])->(float32[1,8]){}`; nothing where an op has none."""
    _, bracket, rest = signature.partition("(")
    inputs, arrow, rest = rest.partition(")->(")
    outputs = rest.partition("){")[0]
    text = f"{inputs} -> {outputs}" if bracket and arrow else ""
    return text if len(text) <= _SHAPES else f"{text[:_SHAPES]}…"


def _transfers(plan: Plan) -> list[TransferRecord]:
    graph, topology, schedule = plan.setup.workload.graph, plan.setup.topology, plan.schedule
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


def _steps(plan: Plan) -> list[StepRecord]:
    """The policy's steps, with the heaviest ops of the groups that moved."""
    problem = plan.setup.for_planner(plan.solution.planner).problem()
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
                    step.units[:_OPS_OF_A_STEP].tolist(), step.sources.tolist(), step.targets.tolist(), strict=False
                )
            ],
            "probability": step.probability,
            "chance": step.chance,
        }
        for step in plan.solution.steps
    ]

"""One model on one device set: every placement simulated, then executed."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from gnnplace.api.measuring import MEASURE_OPTIONS
from gnnplace.api.setting import Setting
from gnnplace.bench.fidelity.cases import Case
from gnnplace.bench.fidelity.placements import placements_of_every_kind
from gnnplace.bench.real_setting import grouped_model, real_setting
from gnnplace.errors import GnnplaceError
from gnnplace.executors.measure import StoppingRule, median_interval, quiet_s
from gnnplace.executors.measured_evaluator import MeasuredEvaluator
from gnnplace.placement import Placement
from gnnplace.sim.simulator import Simulator

__all__ = ["fidelity_result"]

_RULE = StoppingRule(warmup=3, min_repeats=15, max_repeats=60, max_s=1.0, relative_spread=0.01)


def fidelity_result(case: Case) -> dict[str, Any]:
    """A row per placement. The simulator knows what was profiled before, and nothing of these executions."""
    setting = real_setting(case.model, case.devices)
    without = _without_segment_costs(setting)
    options = dataclasses.replace(MEASURE_OPTIONS, search=_RULE)
    rows = []
    with MeasuredEvaluator(grouped_model(setting), setting.topology, setting.group_simulator, options) as evaluator:
        for kind, assignment in placements_of_every_kind(setting, case.seed):
            ops = Placement(setting.coarsening.expand(assignment))
            rows.append(
                {
                    "kind": kind,
                    "segments": len(evaluator.segments_of(Placement(assignment))),
                    "simulated_s": setting.simulator.evaluate(ops).makespan_s,
                    "without_segment_costs_s": without.evaluate(ops).makespan_s,
                    **_executed(evaluator, Placement(assignment)),
                }
            )
        device = evaluator.single_device
    return {
        "placements": rows,
        "ops": setting.workload.graph.num_ops,
        "groups": setting.coarsening.graph.num_ops,
        "simulated_single_s": None if device is None else _on_one_device(setting, device),
        "segment_overhead_s": setting.topology.segment_overhead_s.tolist(),
        "intake_bandwidth_bytes_per_s": [device.intake_bandwidth_bytes_per_s for device in setting.topology.devices],
    }


def _executed(evaluator: MeasuredEvaluator, placement: Placement) -> dict[str, Any]:
    """What the placement took, and the plain session in turns with it; why there is nothing to say where it failed."""
    nothing: dict[str, Any] = dict.fromkeys(("measured_s", "plain_session_s", "median_s", "spread_s"))
    try:
        samples = evaluator.repeats_s(placement)
    except GnnplaceError as error:
        return {**nothing, "repeats": 0, "failure": str(error)}
    placed_s, plain_s = quiet_s(samples).tolist()
    interval = median_interval(samples[0])
    return {
        "measured_s": placed_s,
        "plain_session_s": plain_s,
        "median_s": interval.median,
        "spread_s": interval.spread,
        "repeats": samples.shape[1],
        "failure": "",
    }


def _on_one_device(setting: Setting, device: str) -> float:
    everything = np.full(setting.workload.graph.num_ops, setting.topology.device_index[device])
    return setting.simulator.evaluate(Placement(everything)).makespan_s


def _without_segment_costs(setting: Setting) -> Simulator:
    """The simulator that thinks of ops and links alone."""
    devices = tuple(
        dataclasses.replace(device, segment_overhead_s=0.0, intake_bandwidth_bytes_per_s=None)
        for device in setting.topology.devices
    )
    topology = dataclasses.replace(setting.topology, devices=devices)
    return Simulator(setting.workload.graph, topology, setting.op_time_s)

"""One model on one device set: every placement simulated, then executed."""

from __future__ import annotations

import dataclasses
from typing import Any

from gnnplace.api.measuring import MEASURE_OPTIONS
from gnnplace.api.setting import Setting
from gnnplace.bench.fidelity.cases import Case
from gnnplace.bench.fidelity.placements import placements_of_every_kind
from gnnplace.bench.real_setting import grouped_model, real_setting
from gnnplace.executors.measure import StoppingRule
from gnnplace.executors.measured_evaluator import MeasuredEvaluator
from gnnplace.placement import Placement
from gnnplace.sim.simulator import Simulator

__all__ = ["fidelity_result"]

_RULE = StoppingRule(warmup=3, min_repeats=15, max_repeats=60, max_s=3.0, relative_spread=0.01)


def fidelity_result(case: Case) -> dict[str, Any]:
    """A row per placement. The simulator knows what was profiled before, and nothing of these executions."""
    setting = real_setting(case.model, case.devices)
    without = _without_segment_costs(setting)
    options = dataclasses.replace(MEASURE_OPTIONS, search=_RULE)
    rows = []
    with MeasuredEvaluator(grouped_model(setting), setting.topology, setting.group_simulator, options) as evaluator:
        for kind, assignment in placements_of_every_kind(setting, case.seed):
            measured = evaluator.evaluate(Placement(assignment))
            ops = Placement(setting.coarsening.expand(assignment))
            rows.append(
                {
                    "kind": kind,
                    "segments": len(evaluator.segments_of(Placement(assignment))),
                    "simulated_s": setting.simulator.evaluate(ops).makespan_s,
                    "without_segment_costs_s": without.evaluate(ops).makespan_s,
                    "measured_s": None if measured.failure else measured.makespan_s,
                    "spread_s": measured.spread_s,
                    "repeats": measured.repeats,
                    "failure": measured.failure,
                }
            )
        single = evaluator.single
    return {
        "placements": rows,
        "ops": setting.workload.graph.num_ops,
        "groups": setting.coarsening.graph.num_ops,
        "plain_session_s": None if single is None else single.makespan_s,
        "segment_overhead_s": setting.topology.segment_overhead_s.tolist(),
        "intake_bandwidth_bytes_per_s": [device.intake_bandwidth_bytes_per_s for device in setting.topology.devices],
    }


def _without_segment_costs(setting: Setting) -> Simulator:
    """The simulator that thinks of ops and links alone."""
    devices = tuple(
        dataclasses.replace(device, segment_overhead_s=0.0, intake_bandwidth_bytes_per_s=None)
        for device in setting.topology.devices
    )
    topology = dataclasses.replace(setting.topology, devices=devices)
    return Simulator(setting.workload.graph, topology, setting.op_time_s)

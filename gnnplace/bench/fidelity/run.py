"""One model on one device set: every placement simulated, then executed."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from gnnplace.api.measuring import executable
from gnnplace.api.problem_setup import Setting
from gnnplace.bench.fidelity.cases import Case
from gnnplace.bench.fidelity.placements import placements_of_every_kind
from gnnplace.bench.fidelity.slowdown import overlap_s, slowdown_together
from gnnplace.bench.real_setting import grouped_model, real_setting
from gnnplace.measuring.measured_evaluator import MeasuredEvaluator
from gnnplace.measuring.timing import StoppingRule, median_interval, quiet_s
from gnnplace.measuring.worker_process import Answer
from gnnplace.placement import Placement
from gnnplace.sim.simulator import Simulator

__all__ = ["fidelity_result"]

_RULE = StoppingRule(warmup=2, min_repeats=20, max_repeats=300, max_s=60.0, relative_spread=0.0)
_AT_ONCE_BYTES = 6 * 2**30
"""Of weights that are held by the placements that take turns, each of which packs its own."""


def fidelity_result(case: Case) -> dict[str, Any]:
    """A row per placement. The simulator knows what was profiled before, and nothing of these executions."""
    setting = real_setting(case.model, case.devices)
    without = _without_segment_costs(setting)
    kinds, assignments = zip(*placements_of_every_kind(setting, case.seed), strict=True)
    placements = [Placement(assignment) for assignment in assignments]
    at_once = int(
        np.clip(_AT_ONCE_BYTES // (2 * max(1, setting.workload.graph.total_weight_bytes)), 10, len(placements))
    )
    model, names = executable(setting.workload), setting.topology.device_names
    slowdown = [slowdown_together(model, names)]
    rows = []
    with MeasuredEvaluator(grouped_model(setting), setting.topology, setting.group_simulator) as evaluator:
        for begin in range(0, len(placements), at_once):
            together = placements[begin : begin + at_once]
            for kind, placement, answer in zip(
                kinds[begin:], together, evaluator.side_by_side(together, _RULE), strict=False
            ):
                ops = Placement(setting.coarsening.expand(placement.assignment))
                rows.append(
                    {
                        "kind": kind,
                        "segments": len(evaluator.segments_of(placement)),
                        "simulated_s": setting.simulator.evaluate(ops).makespan_s,
                        "overlap_s": overlap_s(setting.simulator.schedule(ops)),
                        "without_segment_costs_s": without.evaluate(ops).makespan_s,
                        **_executed(answer),
                    }
                )
        device = evaluator.single_device
    slowdown.append(slowdown_together(model, names))
    return {
        "placements": rows,
        "slowdown_together": slowdown,
        "ops": setting.workload.graph.num_ops,
        "groups": setting.coarsening.graph.num_ops,
        "simulated_single_s": None if device is None else _on_one_device(setting, device),
        "segment_overhead_s": setting.topology.segment_overhead_s.tolist(),
        "intake_bandwidth_bytes_per_s": [device.intake_bandwidth_bytes_per_s for device in setting.topology.devices],
    }


def _executed(answer: Answer) -> dict[str, Any]:
    """What the placement took, and the plain session in turns with it; why there is nothing to say where it failed."""
    if answer.samples is None or len(answer.samples) < 2:
        nothing: dict[str, Any] = dict.fromkeys(("measured_s", "plain_session_s", "halves", "median_s", "spread_s"))
        return {**nothing, "repeats": 0, "failure": answer.failure or "there is no plain session to compare with"}
    placed_s, plain_s = quiet_s(answer.samples).tolist()
    halves = [quiet_s(answer.samples[:, begin::2]) for begin in (0, 1)]
    interval = median_interval(answer.samples[0])
    return {
        "measured_s": placed_s,
        "plain_session_s": plain_s,
        "halves": [float(placed / plain) for placed, plain in halves],
        "median_s": interval.median,
        "spread_s": interval.spread,
        "repeats": answer.samples.shape[1],
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

"""Placements of every kind, good and bad, and the slowdown that devices cause each other."""

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial

import numpy as np

from gnnplace.api.problem_setup import ProblemSetup
from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.files import temporary_folder
from gnnplace.measuring.grouped_parts import PartMaker
from gnnplace.measuring.timing import StoppingRule, interleaved, quiet_s
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.sample_inputs import sample_inputs
from gnnplace.planners.catalog import load_planner
from gnnplace.planners.solution import Budget
from gnnplace.running.runner import PlacedRunner
from gnnplace.schedule import Schedule

COUNT = 30
_CUTS = (1, 1, 1, 2, 2, 3, 5, 8)
"""Numbers of cuts through the order of the ops."""
_LISTS = ("heft", "peft", "m-etf", "m-sct", "heft-portfolio")
_MISJUDGED = 5
"""Number of HEFT schedules with op times that are wrong by random factors: decent placements of another kind."""
_BLOCKS = (8, 16, 32, 64, 128)
"""Numbers of stretches of consecutive groups that are placed at random together."""
_RULE = StoppingRule(warmup=2, min_repeats=15, max_repeats=200, max_s=4.0, relative_spread=0.0)


def placements_of_every_kind(setup: ProblemSetup, seed: int) -> list[tuple[str, IntArray]]:
    """`COUNT` pairs of a kind (`single`, `cuts`, `list` or `random`) and a placement `[G]` of the op groups."""
    rng = np.random.default_rng(seed)
    groups, devices = setup.coarsening.graph.num_ops, setup.topology.num_devices
    progress = _progress(setup)
    found = [("single", np.full(groups, device)) for device in range(devices)]
    found += [("cuts", np.searchsorted(np.sort(rng.random(count)), progress) % devices) for count in _CUTS]
    found += [("list", assignment) for assignment in _list_schedules(setup.problem(), rng)]
    for count in _BLOCKS:
        stretch = np.minimum((progress * count).astype(np.int64), count - 1)
        found.append(("random", rng.integers(0, devices, count)[stretch]))
    found += [("random", rng.integers(0, devices, groups)) for _ in range(COUNT - len(found))]
    return found


def _progress(setup: ProblemSetup) -> FloatArray:
    """`[G]` share of the work that precedes each group in topological order."""
    order = setup.coarsening.graph.topological_order
    times_s = setup.group_simulator.op_time_s
    seconds = np.where(np.isfinite(times_s), times_s, 0.0).mean(axis=1)[order]
    progress = np.empty(len(order))
    progress[order] = (np.cumsum(seconds) - seconds) / seconds.sum()
    return progress


def _list_schedules(problem: Problem, rng: np.random.Generator) -> Iterator[IntArray]:
    for name in _LISTS:
        yield load_planner(name)(problem, Budget(), 0).placement.assignment
    for _ in range(_MISJUDGED):
        factors = np.exp(rng.normal(0.0, 0.5, problem.op_time_s.shape))
        misjudged = dataclasses.replace(problem, op_time_s=problem.op_time_s * factors)
        yield load_planner("heft")(misjudged, Budget(), 0).placement.assignment


def slowdown_together(model: OnnxModel, devices: Sequence[str]) -> float:
    """Seconds of one session of the model per device, all at once, over those of the slowest session alone.

    The ratio is 1 where devices share nothing. Cores share caches and memory, and two cores of a virtual machine may be two
    threads of one core: on a rented machine of that kind the ratio was 1.0 for some minutes and 1.3 for others.
    """
    graph = model.model.graph
    inputs, outputs = ([str(value.name) for value in values] for values in (graph.inputs, graph.outputs))
    with temporary_folder() as folder, ExitStack() as stack:
        maker, every_op = PartMaker(model, folder), range(model.graph.num_ops)
        parts = [maker.part(every_op, device, "the whole model") for device in devices]
        runners = [stack.enter_context(PlacedRunner((part,), inputs, outputs)) for part in parts]
        rng = np.random.default_rng(0)
        values = sample_inputs(model, rng)
        feed = {name: values[name] for name in parts[0].inputs}

        def all_at_once() -> None:
            for future in [runner.submit(None, feed) for runner in runners]:
                future.result()

        samples = interleaved([all_at_once, *(partial(runner.run, None, feed) for runner in runners)], _RULE, rng)
    together_s, *alone_s = quiet_s(samples).tolist()
    return float(together_s / max(alone_s))


def overlap_s(schedule: Schedule) -> float:
    """Seconds of computing beside another device, summed over all devices but one."""
    ends = np.concatenate([schedule.start_s, schedule.end_s])
    order = np.argsort(ends, kind="stable")
    running = np.cumsum(np.repeat([1, -1], len(schedule.start_s))[order])
    return float(np.maximum(running[:-1] - 1, 0) @ np.diff(ends[order]))

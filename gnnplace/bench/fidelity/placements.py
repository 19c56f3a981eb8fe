"""Placements of every kind, good and bad: one device, cuts, list schedules, random."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from gnnplace.api.problem_setup import Setting
from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.planners.budget import Budget
from gnnplace.planners.catalog import load_planner

__all__ = ["COUNT", "placements_of_every_kind"]

COUNT = 30
_CUTS = (1, 1, 1, 2, 2, 3, 5, 8)
"""Numbers of cuts through the order of the ops."""
_LISTS = ("heft", "peft", "m-etf", "m-sct", "heft-portfolio")
_MISJUDGED = 5
"""List schedules by op times that are wrong by a random factor: decent placements that nobody had in mind."""
_BLOCKS = (8, 16, 32, 64, 128)
"""Random placements of so many stretches of consecutive groups, which have fewer borders than those of single groups."""


def placements_of_every_kind(setting: Setting, seed: int) -> list[tuple[str, IntArray]]:
    """`COUNT` pairs of a kind - `single`, `cuts`, `list` or `random` - and a placement `[G]` of the op groups."""
    rng = np.random.default_rng(seed)
    groups, devices = setting.coarsening.graph.num_ops, setting.topology.num_devices
    progress = _progress(setting)
    found = [("single", np.full(groups, device)) for device in range(devices)]
    found += [("cuts", np.searchsorted(np.sort(rng.random(count)), progress) % devices) for count in _CUTS]
    found += [("list", assignment) for assignment in _list_schedules(setting.problem(), rng)]
    for count in _BLOCKS:
        stretch = np.minimum((progress * count).astype(np.int64), count - 1)
        found.append(("random", rng.integers(0, devices, count)[stretch]))
    found += [("random", rng.integers(0, devices, groups)) for _ in range(COUNT - len(found))]
    return found


def _progress(setting: Setting) -> FloatArray:
    """`[G]` which share of the work is done before each group, in topological order."""
    order = setting.coarsening.graph.topological_order
    times_s = setting.group_simulator.op_time_s
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

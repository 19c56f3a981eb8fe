"""The Gymnasium environment of one placement; observations are dictionaries of arrays of fixed shape.

`static` entries depend on the problem alone, `dynamic` entries change with every step. No entry has seconds or bytes. Times are
fractions of the mean unit time (static), of the current makespan (dynamic), or of the reference time (`candidate_change`). Bytes are
fractions of the graph's totals, and the peak memory is a fraction of the memory of its device.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.env.episodes import EnvConfig, SweepEpisodes
from gnnplace.env.process import PlacementProcess, Runtime
from gnnplace.errors import InvalidAction, shown
from gnnplace.evaluation import Problem
from gnnplace.placement import Placement

LARGEST = 1e6
"""Limit of all ratios, since a space needs finite bounds."""

Observation = dict[str, Any]


def _observation_space(problem: Problem) -> spaces.Dict:
    units, devices, edges = problem.num_units, problem.topology.num_devices, len(problem.graph.edges[0])
    static: dict[str, spaces.Space[Any]] = {
        "unit_time": _amount(units, devices),
        "unit_allowed": spaces.MultiBinary((units, devices)),
        "unit_memory": _share(units),
        "edges": _index(units, edges, 2),
        "edge_bytes": _share(edges),
        "device_memory": _amount(devices),
    }
    dynamic: dict[str, spaces.Space[Any]] = {
        "unit": _index(units, 1),
        "device": _index(devices, units),
        "start": _share(units),
        "end": _share(units),
        "slack": _share(units),
        "load": _share(devices),
        "peak_memory": _amount(devices),
        "candidate_change": spaces.Box(-LARGEST, LARGEST, (devices,), np.float32),
        "action_mask": spaces.MultiBinary(devices),
    }
    return spaces.Dict({"static": spaces.Dict(static), "dynamic": spaces.Dict(dynamic)})


def _static_observation(process: PlacementProcess) -> dict[str, NDArray[np.generic]]:
    """The static entries: unit times per device, memory, one edge per tensor and consumer, capacities."""
    problem, tables = process.problem, process.tables
    allowed = problem.action_mask
    times = np.where(allowed, tables.unit_time_s, 0.0)
    mean_s = max(float(times.sum() / max(1, allowed.sum())), 1e-30)
    total = max(1.0, float(problem.graph.total_weight_bytes))
    sources, targets = problem.graph.edges
    edge_bytes = problem.graph.tensor_bytes[problem.graph.consumer_tensor]
    return {
        "unit_time": _ratio(times / mean_s),
        "unit_allowed": allowed.astype(np.int8),
        "unit_memory": np.clip(tables.unit_memory_bytes / total, 0.0, 1.0).astype(np.float32),
        "edges": np.stack([problem.unit_of_op[sources], problem.unit_of_op[targets]], axis=1).astype(np.int64),
        "edge_bytes": (edge_bytes / max(1.0, float(edge_bytes.sum()))).astype(np.float32),
        "device_memory": _ratio(problem.topology.memory_bytes / total),
    }


def _observe(episodes: SweepEpisodes, static: Mapping[str, NDArray[np.generic]]) -> Observation:
    """The observation of the first placement before the current step; after the last step, the last unit stays current."""
    process = episodes.process
    problem, tables, timing = process.problem, process.tables, process.schedules()
    makespan_s = max(float(timing.makespan_s[0]), 1e-30)
    units = problem.num_units
    start, end, slack = np.full(units, np.inf), np.zeros(units), np.full(units, np.inf)
    np.minimum.at(start, tables.unit_of_op, timing.start_s[0])
    np.maximum.at(end, tables.unit_of_op, timing.end_s[0])
    np.minimum.at(slack, tables.unit_of_op, timing.slack_s[0])
    devices = problem.topology.num_devices
    mask = np.zeros(devices, dtype=np.bool_) if episodes.is_done else episodes.action_mask[0]
    change = np.zeros(devices)
    if episodes.candidate_s is not None:
        candidate_s, now_s = (
            np.minimum(s, process.failed_s) for s in (episodes.candidate_s[0, mask], process.seconds[0])
        )
        change[mask] = (candidate_s - now_s) / process.reference_s
    dynamic = {
        "unit": np.array([episodes.visited[-1] if episodes.is_done else episodes.unit], dtype=np.int64),
        "device": process.devices[0].copy(),
        "start": _fraction(start, makespan_s),
        "end": _fraction(end, makespan_s),
        "slack": _fraction(slack, makespan_s),
        "load": _fraction(timing.busy_s[0], makespan_s),
        "peak_memory": _ratio(timing.peak_memory_bytes[0] / problem.topology.memory_bytes.clip(min=1)),
        "candidate_change": _ratio(change),
        "action_mask": mask.astype(np.int8),
    }
    return {"static": {name: values.copy() for name, values in static.items()}, "dynamic": dynamic}


def _share(*shape: int) -> spaces.Box:
    return spaces.Box(0.0, 1.0, shape, np.float32)


def _amount(*shape: int) -> spaces.Box:
    return spaces.Box(0.0, LARGEST, shape, np.float32)


def _index(size: int, *shape: int) -> spaces.Box:
    return spaces.Box(0, size - 1, shape, np.int64)


def _ratio(values: FloatArray) -> NDArray[np.float32]:
    return np.clip(values, -LARGEST, LARGEST).astype(np.float32)


def _fraction(seconds: FloatArray, makespan_s: float) -> NDArray[np.float32]:
    return np.clip(seconds / makespan_s, 0.0, 1.0).astype(np.float32)


class PlacementEnv(gymnasium.Env[Observation, np.int64]):
    """`SweepEpisodes` of one placement, which an agent improves unit by unit.

    An action is a device index; the mask always allows the current device. An episode ends (`terminated`) after
    `num_sweeps * U` steps. `reset(options={"start": assignment})` replaces `start` for one episode. The environment is
    deterministic and ignores seeds.
    """

    def __init__(
        self, problem: Problem, start: IntArray, config: EnvConfig = EnvConfig(), runtime: Runtime | None = None
    ) -> None:
        """An environment on `problem` whose episodes begin at the assignment `start` `[N]`.

        Raises:
            InvalidGraph: the graph has no ops.
        """
        self.episodes = SweepEpisodes(problem, config, runtime)
        self.start = Placement(start).assignment
        self.observation_space = _observation_space(problem)
        self.action_space = spaces.Discrete(problem.topology.num_devices)
        self._static = _static_observation(self.episodes.process)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """The first observation, and the info dictionary of `step`.

        Raises:
            InvalidPlacement: the start is illegal.
        """
        super().reset(seed=seed)
        start = Placement((options or {}).get("start", self.start)).assignment
        self.episodes.reset(start[None, :])
        return _observe(self.episodes, self._static), self._info()

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Observation, reward, terminated, truncated (always false), and the current and best seconds with the best assignment.

        Raises:
            InvalidAction: the mask forbids the device, it is no device, or the episode is over or has not begun.
        """
        if not np.issubdtype(np.asarray(action).dtype, np.integer) or np.size(action) != 1:
            raise InvalidAction(f"the action is {shown(action)}; expected the number of a device")
        reward = float(self.episodes.step(np.array([action], dtype=np.int64))[0])
        return _observe(self.episodes, self._static), reward, self.episodes.is_done, False, self._info()

    def action_masks(self) -> BoolArray:
        """`[D]` true where the current unit may go; libraries with masked policies look for this name.

        Raises:
            InvalidAction: no episode has begun.
        """
        self.episodes.check_begun()
        return np.asarray(self.episodes.action_mask[0])

    def _info(self) -> dict[str, Any]:
        process = self.episodes.process
        return {
            "seconds": min(float(process.seconds[0]), process.failed_s),
            "best_seconds": min(float(process.best_seconds[0]), process.failed_s),
            "best_assignment": process.best_devices[0, process.problem.unit_of_op],
        }

"""The Gymnasium environment: one placement, one unit per step."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from gnnplace.arrays import BoolArray, IntArray
from gnnplace.env.batch import EnvConfig, PlacementBatch
from gnnplace.env.observation import Observation, observation_space, observe, static_observation
from gnnplace.env.runtime import Runtime
from gnnplace.evaluation import Problem

__all__ = ["PlacementEnv"]


class PlacementEnv(gymnasium.Env[Observation, np.int64]):
    """A placement that is improved unit by unit: a `PlacementBatch` of one.

    An action is a device index. The current device is always allowed, so an episode can always go on; it ends
    (`terminated`) after `num_sweeps * U` steps. `reset(options={"start": assignment})` begins elsewhere than at `start`.
    The environment is deterministic; seeds change nothing.
    """

    def __init__(
        self, problem: Problem, start: IntArray, config: EnvConfig = EnvConfig(), runtime: Runtime | None = None
    ) -> None:
        """An environment on `problem` whose episodes begin at the assignment `start` `[N]`.

        Raises:
            InvalidGraph: there is nothing to place.
        """
        self.batch = PlacementBatch(problem, config, runtime)
        self.start = np.array(start, dtype=np.int64)
        self.observation_space = observation_space(problem)
        self.action_space = spaces.Discrete(problem.topology.num_devices)
        self._static = static_observation(self.batch)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """The first observation and its facts.

        Raises:
            InvalidPlacement: the start is illegal.
        """
        super().reset(seed=seed)
        start = np.array((options or {}).get("start", self.start), dtype=np.int64)
        self.batch.reset(start[None, :])
        return observe(self.batch, self._static), self._info()

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Observation, reward, terminated, truncated (never), facts.

        Raises:
            InvalidAction: the mask forbids the device, or the episode is over.
        """
        reward = float(self.batch.step(np.array([action], dtype=np.int64))[0])
        return observe(self.batch, self._static), reward, self.batch.is_done, False, self._info()

    def action_masks(self) -> BoolArray:
        """`[D]` true where the current unit may go (the name that masked trainers of other libraries look for)."""
        mask: BoolArray = self.batch.action_mask[0]
        return mask

    def _info(self) -> dict[str, Any]:
        return {
            "seconds": float(self.batch.seconds[0]),
            "best_seconds": float(self.batch.best_seconds[0]),
            "best_assignment": self.batch.best_assignments[0].copy(),
        }

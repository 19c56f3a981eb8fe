"""Episodes of the decision process in which each step visits one unit."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from gnnplace.arguments import check_whole
from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.env.process import PlacementProcess, Runtime
from gnnplace.errors import InvalidAction
from gnnplace.evaluation import Problem
from gnnplace.placement import Placement, check_legal


@dataclass(frozen=True)
class EnvConfig:
    """The length of an episode, and whether moves are evaluated ahead."""

    num_sweeps: int = 1
    """Visits per unit; Placeto (Addanki et al. 2019) visits every unit once."""
    lookahead: bool = False
    """Whether every candidate move of the current unit is evaluated before one is chosen."""

    def __post_init__(self) -> None:
        """Raises GnnplaceError unless there is at least one sweep."""
        check_whole("num_sweeps", self.num_sweeps, 1)


class SweepEpisodes:
    """`B` episodes, stepped together; every step of a `PlacementProcess` gives the same unit a device in each of them."""

    def __init__(
        self,
        problem: Problem,
        config: EnvConfig = EnvConfig(),
        runtime: Runtime | None = None,
        reference_s: float | None = None,
    ) -> None:
        """Episodes without placements; `reset` starts them. `runtime` and `reference_s` are those of `PlacementProcess`.

        Raises:
            InvalidGraph: the graph has no ops.
        """
        self.process = PlacementProcess(problem, runtime, reference_s)
        self.config = config
        self.step_index = 0
        self.visited: IntArray = np.arange(problem.num_units)
        self.candidate_s: FloatArray | None = None
        """`[B, D]` seconds after each allowed move of the current unit, infinite where forbidden; None without lookahead."""
        self._lookahead_is_exact = runtime is None and problem.evaluator.kind == "simulated"

    def reset(self, starts: IntArray, start_s: FloatArray | None = None, visited: IntArray | None = None) -> Self:
        """Begins at `[B, N]` assignments; their seconds `start_s` `[B]` are evaluated unless passed.

        `visited` lists the units of a sweep in order; by default, all units in topological order.

        Raises:
            InvalidPlacement: a start is illegal.
        """
        problem = self.process.problem
        for start in np.unique(starts, axis=0):
            check_legal(problem.graph, problem.topology, Placement(start))
        self.process.reset(problem.unit_devices(starts), start_s)
        self.step_index = 0
        self.visited = np.arange(problem.num_units) if visited is None else visited
        self._look_ahead()
        return self

    @property
    def num_steps(self) -> int:
        """`T`, the number of steps of an episode."""
        return self.config.num_sweeps * len(self.visited)

    @property
    def is_done(self) -> bool:
        """True after the last sweep."""
        return self.step_index >= self.num_steps

    @property
    def unit(self) -> int:
        """The unit that the next step visits."""
        return int(self.visited[self.step_index % len(self.visited)])

    @property
    def action_mask(self) -> BoolArray:
        """`[B, D]` true where the current unit can run and exchange tensors with its neighbours."""
        return self.process.action_mask(self.unit)

    def step(self, actions: IntArray) -> FloatArray:
        """Gives the current unit the device `actions[b]` in every placement `b`; returns the rewards `[B]`.

        Raises:
            InvalidAction: the mask forbids a device, or the episode is over.
        """
        self._check(actions)
        devices = self.process.devices.copy()
        devices[:, self.unit] = actions
        known_s = None
        if self.candidate_s is not None and self._lookahead_is_exact:
            known_s = self.candidate_s[np.arange(len(actions)), actions]
        rewards = self.process.step(devices, known_s)
        self.step_index += 1
        self._look_ahead()
        return rewards

    def check_begun(self) -> None:
        """Raises InvalidAction before the first `reset`."""
        if not self.process.num_placements:
            raise InvalidAction("no episode has begun; call reset first")

    def _check(self, actions: IntArray) -> None:
        self.check_begun()
        if self.is_done:
            raise InvalidAction(f"step {self.step_index} comes after the end of the episode; reset first")
        mask, problem = self.action_mask, self.process.problem
        known = (actions >= 0) & (actions < mask.shape[1])
        wrong = np.flatnonzero(~known | ~mask[np.arange(len(mask)), np.where(known, actions, 0)])
        if len(wrong):
            name = problem.graph.op_names[problem.unit_ops[self.unit][0]]
            raise InvalidAction(
                f"action {actions[wrong[0]]} for op {name!r} is forbidden by the mask {mask[wrong[0]].tolist()}; "
                "choose a device whose entry is true"
            )

    def _look_ahead(self) -> None:
        self.candidate_s = None
        if not self.config.lookahead or self.is_done:
            return
        process, problem, mask = self.process, self.process.problem, self.action_mask
        rows, here = np.arange(process.num_placements), process.devices[:, self.unit]
        self.candidate_s = np.full(mask.shape, np.inf)
        self.candidate_s[rows, here] = process.seconds
        mask[rows, here] = False
        for row in rows.tolist():
            devices = np.flatnonzero(mask[row])
            if len(devices):
                ops = np.tile(problem.unit_of_op == self.unit, (len(devices), 1))
                assignment = process.devices[row, problem.unit_of_op]
                moves = problem.estimator.evaluate_moves(assignment, ops, devices)
                self.candidate_s[row, devices] = problem.penalised_batch_s(moves)

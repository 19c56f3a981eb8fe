"""Repair of schedules under tight memory, by estimates alone."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.planners.classical.estimates import estimated_peak_bytes, scheduled
from gnnplace.planners.classical.list_schedule import ListSchedule
from gnnplace.planners.classical.repair_moves import Costs, Memory, evict, fill

_SCHEDULES = 12  # of one repair


@dataclass(frozen=True, eq=False)
class Repair:
    """Moves units between devices that are short of memory and hosts that are not.

    A move is worth the seconds of compute that it saves less those of the transfers that it causes, as if nothing overlapped. Units
    leave over-full memories; where all fit, units leave the hosts for free memory, and up to six units make room for one of them,
    on other devices. After the moves the placement is scheduled again, because its real peak memory differs from the sum over its
    units. Where it needs too much, the moves are taken back, and half as many are tried.
    """

    problem: Problem
    costs: Costs

    def repaired(self, schedule: ListSchedule, filled: float) -> Iterator[ListSchedule]:
        """Schedules of repaired placements, whose estimated peaks may fill a share of each memory; the last ones are the best."""
        problem, topology, costs = self.problem, self.problem.topology, self.costs
        if costs.is_scarce.all() or not costs.is_scarce.any():
            return
        limit_bytes: FloatArray = filled * topology.memory_bytes[topology.memory_home].astype(np.float64)
        devices = problem.unit_devices(schedule.assignment)
        room = limit_bytes - estimated_peak_bytes(problem, schedule)
        banned, most = np.zeros(problem.num_units, dtype=np.bool_), problem.num_units
        for _ in range(_SCHEDULES):
            fits, moved = bool((room >= 0.0).all()), devices.copy()
            state = Memory(room.copy(), self._reserved_bytes(devices))
            brought = fill(most, banned, moved, costs, state) if fits else np.zeros(0, dtype=np.int64)
            if not fits:
                evict(moved, costs, state)
            if (moved == devices).all():
                return
            tried = scheduled(problem, moved)
            tried_room = limit_bytes - estimated_peak_bytes(problem, tried)
            if not fits or (tried_room >= 0.0).all():
                yield tried
                devices, room, most = moved, tried_room, 2 * most
                continue
            most = len(brought) // 2
            if not most:
                banned[brought], most = True, 1

    def _reserved_bytes(self, devices: IntArray) -> FloatArray:
        """`[D]` the most that a unit of a memory needs while it runs, at the first device of the memory."""
        reserved = np.zeros(self.problem.topology.num_devices)
        np.maximum.at(reserved, self.costs.home[devices], self.costs.transient_bytes)
        return reserved

"""The Metropolis rule of simulated annealing: which worse moves a search accepts, and how its temperature falls."""

import math
import sys

import numpy as np

from gnnplace.planners.search import Search


def accepts(before_s: float, after_s: float, temperature_s: float, rng: np.random.Generator) -> bool:
    """True where a search moves from a placement of `before_s` seconds to one of `after_s`.

    Metropolis et al. 1953. Draws a random number only for a worse placement at a temperature above zero.
    """
    if after_s <= before_s:
        return True
    return temperature_s > 0 and rng.random() < math.exp((before_s - after_s) / temperature_s)


def cooled_s(first_s: float, final_ratio: float, share_done: float) -> float:
    """Seconds of a temperature that falls geometrically from `first_s` to `final_ratio` times that."""
    return float(first_s * final_ratio**share_done)


class SearchClock:
    """The progress of one stage of a search, from the moment that the clock is made.

    Args:
        search: Search that the stage is a part of.
        end_share: Share of the whole budget at which the stage ends, in evaluations and in seconds.
        max_evaluations: Evaluations after which the stage ends at the latest; None: no such limit.
    """

    def __init__(self, search: Search, end_share: float = 1.0, max_evaluations: int | None = None) -> None:
        budget = search.budget
        self._search, self._first, self._begin_s = search, search.evaluations, search.wall_s
        end_s = None if budget.seconds is None else end_share * budget.seconds
        self._seconds = None if end_s is None else max(1e-9, end_s - self._begin_s)
        limits = [max_evaluations] if max_evaluations is not None else []
        if budget.evaluations is not None:
            limits.append(max(0, math.ceil(end_share * budget.evaluations) - self._first))
        self.max_evaluations = min(limits, default=None)
        """Evaluations of the whole stage; None where only its seconds are limited."""

    @property
    def share_of_seconds(self) -> float:
        """Share of the seconds of the stage that are over; 0 where only its evaluations are limited."""
        return 0.0 if self._seconds is None else (self._search.wall_s - self._begin_s) / self._seconds

    @property
    def evaluations_made(self) -> int:
        """Evaluations since the stage began."""
        return self._search.evaluations - self._first

    @property
    def evaluations_left(self) -> int:
        """Evaluations until the stage ends; a huge number where only its seconds are limited."""
        return sys.maxsize if self.max_evaluations is None else self.max_evaluations - self.evaluations_made

    @property
    def known_evaluations_left(self) -> float:
        """Evaluations until the stage ends; infinite where only its seconds are limited."""
        return np.inf if self.max_evaluations is None else float(self.evaluations_left)

    @property
    def share_done(self) -> float:
        """Share of the stage that is over, from 0 to 1, by the limit that is nearer."""
        by_count = 0.0 if self.max_evaluations is None else self.evaluations_made / max(1, self.max_evaluations)
        return min(1.0, max(by_count, self.share_of_seconds))

    @property
    def share_per_evaluation(self) -> float:
        """Increase of `share_done` with one evaluation, estimated from the rate so far where seconds end the stage."""
        by_count = 0.0 if self.max_evaluations is None else 1.0 / max(1, self.max_evaluations)
        return max(by_count, self.share_of_seconds / self.evaluations_made) if self.evaluations_made else by_count

    @property
    def expected_evaluations(self) -> int:
        """Evaluations of the whole stage, estimated from the search's rate so far where only seconds are limited."""
        if self.max_evaluations is not None:
            return self.max_evaluations
        rate_per_s = self._search.evaluations / max(1e-9, self._search.wall_s)
        return int(rate_per_s * (self._seconds or 0.0))

"""Which assignments there were already, so that no evaluation is spent on one twice."""

from __future__ import annotations

from collections.abc import Iterable

from gnnplace.arrays import IntArray

__all__ = ["Seen"]


class Seen:
    """A set of assignments.

    >>> import numpy as np
    >>> seen = Seen([np.array([0, 1])])
    >>> [row.tolist() for row in seen.fresh([np.array([0, 1]), np.array([1, 0]), np.array([1, 0])])]
    [[1, 0]]
    """

    def __init__(self, assignments: Iterable[IntArray] = ()) -> None:
        self._keys = {assignment.tobytes() for assignment in assignments}

    def add(self, assignment: IntArray) -> bool:
        """True where it was not there before.

        >>> import numpy as np
        >>> seen = Seen()
        >>> seen.add(np.array([0, 1])), seen.add(np.array([0, 1]))
        (True, False)
        """
        before = len(self._keys)
        self._keys.add(assignment.tobytes())
        return len(self._keys) > before

    def fresh(self, assignments: Iterable[IntArray]) -> list[IntArray]:
        """Those that were not there before, each once, in their order; now they are."""
        return [assignment for assignment in assignments if self.add(assignment)]

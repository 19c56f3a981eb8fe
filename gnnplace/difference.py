"""The measured difference of the seconds of two placements."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """Relative difference of the seconds of A and B, A over B minus 1, with its confidence interval.

    >>> Difference(difference=-0.03, low=-0.04, high=-0.02, pairs=40).sign
    -1
    """

    difference: float
    low: float
    high: float
    pairs: int
    """Runs of each of the two."""

    @property
    def sign(self) -> int:
        """-1 where A is faster, 1 where B is faster, 0 where the interval contains 0."""
        return int(self.low > 0) - int(self.high < 0)

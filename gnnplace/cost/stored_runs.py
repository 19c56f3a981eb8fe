"""Stored seconds of placed models, and the estimate that they give of a placement's seconds today."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

JOB_SPREAD = 0.035
"""Standard deviation between the ratios of two jobs, as a fraction: equal placements differed by 3 to 4 %."""
DOUBLING_S = 30 * 24 * 3600.0
"""Age in seconds at which the variance between jobs has doubled."""


@dataclass(frozen=True)
class StoredRuns:
    """Seconds of one placed model and of the reference in the rounds of one job."""

    candidate_s: tuple[float, ...]
    reference_s: tuple[float, ...]
    """Seconds of the reference in the same rounds."""
    reference: str
    """Device of the reference, a plain session of the whole model."""
    conditions: Mapping[str, float | str | None] = field(default_factory=dict)
    """Load average when the search began, clock of the CPU, timer, and versions."""
    measured_at: float = 0.0
    """When the rounds ended, in seconds since 1970 (UTC)."""


def estimated_seconds(
    runs: Sequence[StoredRuns], reference_s: Mapping[str, float], now: float
) -> tuple[float, float] | None:
    """Estimated seconds of a placed model today, and half the width of their 95 % interval; None without usable runs.

    `reference_s` are today's seconds of the references, by device. A job estimates the logarithm of the seconds by that of the
    median over its rounds of candidate over reference. Its variance is

        (1.25 s)**2 / R + JOB_SPREAD**2 * (1 + age / DOUBLING_S)

    where `s` is the standard deviation of the logarithms over its `R` rounds, and 1.25 is for a median of normal values. Jobs
    are averaged with the inverse of their variances as weights. This assumes that jobs deviate independently, and that a
    machine drifts like a random walk; the rate of that drift is an assumption, which no measurement supports yet.
    """
    usable = [run for run in runs if run.reference in reference_s and run.candidate_s]
    if not usable:
        return None
    logs, variances = [], []
    for run in usable:
        ratios = np.array(run.candidate_s) / np.array(run.reference_s)
        age = max(0.0, now - run.measured_at) / DOUBLING_S
        logs.append(math.log(float(np.median(ratios)) * reference_s[run.reference]))
        variances.append(1.25**2 * float(np.var(np.log(ratios))) / len(ratios) + JOB_SPREAD**2 * (1 + age))
    weights = 1 / np.array(variances)
    seconds = math.exp(float(weights @ np.array(logs) / weights.sum()))
    return seconds, seconds * 1.96 / math.sqrt(weights.sum())

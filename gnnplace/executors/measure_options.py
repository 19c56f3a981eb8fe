"""How long measuring placements may take, and what of it counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gnnplace.evaluation import DimsObjective
from gnnplace.executors.measure import StoppingRule

__all__ = ["SLOWEST", "MeasureOptions"]

SLOWEST = 10.0
"""Times the plain session: what is slower need not be known well."""


@dataclass(frozen=True)
class MeasureOptions:
    """How long measuring may take."""

    search: StoppingRule = StoppingRule(
        warmup=1, min_repeats=4, max_repeats=20, max_s=0.3, relative_spread=0.03, reference_every=2, abandon_at=SLOWEST
    )
    """For a placement during the search; one that is `clearly_slower` than the best so far, or over ten times as slow as the plain
    session, is not repeated further. Four repeats are too few for a 95 % interval, but the best few are measured again at the end."""
    final: StoppingRule = StoppingRule(warmup=3, min_repeats=15, max_repeats=300, max_s=10.0, relative_spread=0.005)
    """For the side-by-side comparison at the end."""
    clearly_slower: float = 1.1
    """Times the best ratio to the plain session so far: what a placement that is not repeated further exceeds in each of three repeats."""
    pieces: Literal["segments", "groups"] = "segments"
    """What is one session during the search. Segments are what will run, and only those that a move changes are compiled
    anew. Groups are compiled once per device, but lose what runtimes fuse and lay out across groups: on small groups of
    convolution networks the same placement took 1.2 to 2.3 times as long."""
    timeout_s: float = 300.0
    """After which loading and running placements is given up in any case. Sooner where the plain session is fast: each
    placement may take `loading_s` and ten times as long as loading that session, and each repeat ten times its seconds."""
    loading_s: float = 30.0
    """Allowance for loading a placement, whatever the plain session took: a GPU's libraries may be new to the process."""
    memory_limit_bytes: int | None = None
    """Resident memory above which the measuring process is stopped; None: 90 % of what is available when it starts."""
    seed: int = 0
    """Of the made-up inputs."""
    requests: int = 1
    """That are run at once, pipelined when there are several. Seconds are then those of one of them, makespan and period alike: what
    counts for throughput."""
    dims_objective: DimsObjective = "worst"
    """Which of the seconds counts where the inputs have several sizes: each repeat runs all of them, one after the other."""

"""What is minimised; apart from everything else, so that a command line can name it at once."""

from __future__ import annotations

from typing import Literal

__all__ = ["DimsObjective", "Objective"]

Objective = Literal["latency", "throughput"]
DimsObjective = Literal["worst", "mean"]
"""Which of the times at several shapes counts."""

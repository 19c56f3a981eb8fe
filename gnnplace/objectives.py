"""Names of objectives, in a module that imports nothing heavy."""

from collections.abc import Mapping
from typing import Literal

Objective = Literal["latency", "throughput"]
DimsObjective = Literal["worst", "mean"]
"""Combination of the times at several input shapes."""
COMBINED: Mapping[DimsObjective, str] = {"worst": "longest", "mean": "mean"}
"""Names of the combined time."""

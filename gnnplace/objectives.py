"""Names of objectives, in a module that imports nothing heavy."""

from typing import Literal

Objective = Literal["latency", "throughput"]
DimsObjective = Literal["worst", "mean"]
"""Combination of the times at several input shapes."""

"""Simulation: same inputs, same schedule, bit for bit; no clock, no randomness.

In reading order: `tables.py` (a graph on a topology as compact arrays), `queues.py` and `state.py` (what the engine works with), `engine.py` (the event loop, rule by rule),
`batch.py` (many placements), `moves.py` (many moves from one placement), `walk/` (many moves one after the other), `simulator.py` (the evaluator),
`grouped.py` (the evaluator of op groups), `several.py` (that of several shapes), `bounds.py` and `relaxation.py` (what no placement can beat),
`example.py` (a problem that can be checked by hand).
"""

from gnnplace.sim.bounds import LowerBound, lower_bound
from gnnplace.sim.simulator import Simulator

__all__ = ["LowerBound", "Simulator", "lower_bound"]

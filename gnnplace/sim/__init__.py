"""Same inputs, same schedule, bit for bit; no clock, no randomness.

In reading order:

- `tables.py`: a graph on a topology as compact arrays;
- `state.py`: the state of a run, with its queues of ready ops and transfers;
- `engine.py`: the compiled event loop, rule by rule, and the result of a run;
- `compiled.py`: the engine as other compiled code calls it;
- `kept_states.py`, `moves.py`: many moves from one placement, each from a kept state;
- `random_moves.py`, `walk.py`: random moves, accepted or undone one after the other (simulated annealing);
- `simulator.py`: the evaluator, of ops and of op groups;
- `several.py`: the evaluator over several input shapes;
- `relaxation.py`, `bounds.py`: seconds that no placement can beat;
- `example.py`: a problem that can be checked by hand.
"""

from gnnplace.sim.bounds import LowerBound, lower_bound
from gnnplace.sim.simulator import Simulator

__all__ = ["LowerBound", "Simulator", "lower_bound"]

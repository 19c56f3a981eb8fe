"""Optimal placement of small graphs by constraint programming.

In reading order:

- `planner.py`: the passes of CP-SAT, with a proof of optimality or a bound;
- `model.py`: placement and schedule as intervals, with rules 1, 2, 3 and 5 of the execution model;
- `rules.py`: memory (rule 4), bounds from paths, and the behaviour of the simulator beyond the rules.
"""

__all__: list[str] = []

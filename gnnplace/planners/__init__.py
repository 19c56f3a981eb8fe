"""Anything that returns a placement: takes a problem, a budget and a seed, and returns the best placement that it found.

In reading order:

- `solution.py`: the limits of a search, and what a planner returns;
- `search.py`: the search that every planner runs in;
- `catalog.py`: the planners by name;
- `metropolis.py`: the acceptance rule of simulated annealing, and the clock of a search;
- `classical/`: one published method per file;
- `gnn/`: the improver;
- `papers/`: the learned methods that it is compared with.
"""

__all__: list[str] = []

"""Anything that returns a placement: takes a problem, a budget and a seed, and returns the best placement that it found.

In reading order:

- `search.py`: the search that every planner runs in, its limits and its solution;
- `catalog.py`: the planners by name;
- `metropolis.py`: the acceptance rule of simulated annealing, and the clock of a search;
- `classical/`: one published method per file;
- `gnn/`: the improver;
- `papers/`: the learned methods that it is compared with.
"""

__all__: list[str] = []

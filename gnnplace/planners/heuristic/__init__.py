"""One published method per file, readable next to its paper.

In reading order:

- `single.py`: the best single device;
- `round_robin.py`: devices in turn;
- `list_schedule.py`: list scheduling with insertion, transfers and memory, compiled;
- `heft.py`: HEFT;
- `starts.py`: the better of these two, from which local searches begin;
- `segments.py`: dynamic programming over cuts of topological orders;
- `greedy.py`: one-step lookahead;
- `annealing.py`: simulated annealing.
"""

__all__: list[str] = []

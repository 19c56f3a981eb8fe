"""Anything that returns a placement: problem, budget and seed in, the best placement seen out.

In reading order:

- `budget.py`: how long a planner may search;
- `search.py`: what every planner searches with, and what it returns;
- `catalog.py`: the planners by name;
- `heuristic/`: one published method per file;
- `learned/`: the improver that learns, and the learned methods that it is compared with.
"""

__all__: list[str] = []

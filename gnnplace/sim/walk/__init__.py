"""Local search inside the simulator: thousands of moves in one compiled call.

In reading order:

- `proposals.py`: which units a move takes, and where to;
- `metropolis.py`: the walk: draw a move, simulate what it changes, accept or undo it;
- `walker.py`: what planners are handed, over units of ops or of op groups.
"""

__all__: list[str] = []

"""The decision process: one unit per step, masks, rewards; `placeto` and Gymnasium users step it.

In reading order:

- `units.py`: the problem as arrays over units;
- `timing.py`: start, end and slack of ops in the current schedules;
- `batch.py`: `PlacementBatch`, which steps several placements at once;
- `placement_env.py`: `PlacementEnv`, the Gymnasium environment of one placement.
"""

__all__: list[str] = []

"""The decision process: one unit per step, masks, rewards; `placeto` and Gymnasium users step it.

In reading order:

- `timing.py`: the problem and the current schedules as arrays;
- `batch.py`: `PlacementBatch`, which steps several placements at once;
- `placement_env.py`: `PlacementEnv`, the Gymnasium environment of one placement.
"""

__all__: list[str] = []

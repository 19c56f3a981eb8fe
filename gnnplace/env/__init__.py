"""The decision process: units get devices, rewards are runtimes saved; `gnn`, training, `placeto` and Gymnasium users step it.

In reading order:

- `timing.py`: the problem and the current schedules as arrays;
- `process.py`: `PlacementProcess`, which steps several placements at once and can take a step back;
- `episodes.py`: `SweepEpisodes`, in which each step visits one unit;
- `placement_env.py`: `PlacementEnv`, the Gymnasium environment of one placement.
"""

__all__: list[str] = []

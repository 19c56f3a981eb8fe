"""Optimal placement of small graphs by constraint programming.

Reading order: `symmetry` (devices that could change places), `model` (placement and schedule as intervals), `memory`,
`rules` (what the simulator does of itself), `planner` (CP-SAT on them, with a proof or a bound).
"""

__all__: list[str] = []

"""Optimal placement of small graphs by constraint programming.

Reading order: `symmetry` (devices that could change places), `model` (placement and schedule as intervals), `memory`,
`paths` (how soon an op may start, and what follows it), `rules` (what the simulator does of itself), `planner` (CP-SAT on
them, with a proof or a bound).
"""

__all__: list[str] = []

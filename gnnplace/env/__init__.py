"""One op per step (Gymnasium); knows rewards and masks, not networks.

Reading order: `units` (the problem as arrays over units), `timing` (what the current schedule says), `runtime` (who
says how long placements take), `batch` (many placements of one problem, stepped at once), `observation` and
`placement_env` (the Gymnasium view of a batch of one).
"""

__all__: list[str] = []

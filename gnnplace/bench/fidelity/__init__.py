"""How well the calibrated simulator predicts what placements take when they are executed.

In reading order: `cases.py` (models and device sets), `placements.py` (placements of every kind), `slowdown.py` (how
much devices slow each other), `run.py` (one model on one device set), `summary.py` (rank correlation and errors), `suite.py` (`gnnplace bench fidelity`).
"""

__all__: list[str] = []

"""Planners whose evaluations are executions, on this machine's cores: how many they need, and how long that takes.

In reading order: `cases.py` (models, planners, budgets), `run.py` (one search), `side_by_side.py` (what the searches ended at,
measured together), `summary.py` (the table), `suite.py` (`gnnplace bench measured`).
"""

__all__: list[str] = []

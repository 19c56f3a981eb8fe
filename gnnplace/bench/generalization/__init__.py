"""What a policy is worth on graphs and device sets that no training has seen, beside searches and its own ablations.

In reading order: `devices.py` (the device sets), `unlike_training.py` (why training cannot draw them), `graphs.py` (graphs of
held-out families and settings), `cases.py` (graph, groups, devices), `rows.py` (planners and budgets), `run.py` (one row on
one case), `earlier.py` (what a stored result already has), `summary.py` (the table and the comparisons), `suite.py`
(`gnnplace bench generalization`).
"""

__all__: list[str] = []

"""A policy on graphs and devices that no training has seen, beside searches and ablations.

In reading order: `cases.py` (graph, groups and devices of every case), `servers.py` (wide graphs over several servers),
`sealed.py` (cases that are run once), `devices.py` (held-out device sets, and their differences to the sampler of training problems), `rows.py` (planners, budgets and variants), `run.py` (one row on one case),
`summary.py` (ratios and comparisons), `suite.py` (`gnnplace bench generalization`).
"""

__all__: list[str] = []

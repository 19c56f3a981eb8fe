"""The tables of the four papers again: their workloads, testbeds and columns, beside the published seconds.

In reading order: `tables.py` (rows with published figures, and one planner on one row), `suites.py` (all planners on all rows,
or some of them beside a stored table: `gnnplace bench seeds` and `spotlight`).
"""

__all__: list[str] = []

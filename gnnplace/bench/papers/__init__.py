"""The tables of the four papers again: their workloads, testbeds and columns, and what they published.

In reading order: `tables.py` (rows and published figures), `case.py` (one planner on one row), `earlier.py`
(lines of a stored table), `seeds.py` (`gnnplace bench seeds`), `spotlight.py` (`gnnplace bench spotlight`).
"""

__all__: list[str] = []

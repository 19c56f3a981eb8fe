"""The comparisons that the README's numbers come from.

In reading order: `options.py` (what can be chosen), `result.py` (what a suite stores), `engine.py` (speed of the
simulator), `planners.py` (planners side by side on the light models), `execution.py` (placed models run for real), `zoo.py`
(every recipe of the zoo), `papers/` (the papers' tables), `suites.py` (the suites by name).
"""

__all__: list[str] = []

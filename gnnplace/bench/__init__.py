"""The comparisons that the README's numbers come from.

In reading order: `result.py` (what a suite stores), `engine.py` (speed of the simulator), `planners.py` (planners side by side on
the light models), `execution.py` (placed models run for real), `suites.py` (the suites by name).
"""

__all__: list[str] = []

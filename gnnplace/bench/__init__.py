"""The comparisons that the README's numbers come from.

In reading order: `options.py` (what can be chosen), `result.py` (what a suite stores), `engine.py` (speed of the
simulator), `planners.py` (planners side by side on the light models), `execution.py` (placed models run for real), `zoo.py`
(every recipe of the zoo), `resumable.py` (many runs, kept one by one), `compiled.py` (a problem before the clock starts), `papers/` (the
papers' tables), `generalization/` (graphs and devices that no training has seen), `real_setting.py` (a zoo
model on devices of this machine), `measured/` (planners whose evaluations are executions), `fidelity/` (simulated against measured
seconds), `scale/` (1,000 to 200,000 ops), `scaling/` (one host and many), `report.py` (how fast
reports open), `suites.py` (the suites by name).
"""

__all__: list[str] = []

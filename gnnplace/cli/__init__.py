"""Parse, call, print: nothing that a notebook could not call.

In reading order: `main.py` (the commands and the edge where errors become one line), `options.py` (arguments that several
commands share), `place.py`, `inspect.py` (evaluate, compare, devices, planners, report), `execute.py` (run, profile),
`train.py`, `measure.py` (bench), `zoo.py`, `doctor.py`, `examples.py` (of every command's help), `completion.py` (what Tab offers),
`output.py` (tables, JSON, notes), `progress.py` (bars).
"""

__all__: list[str] = []

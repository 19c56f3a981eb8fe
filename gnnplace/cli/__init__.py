"""Parse, call, print: nothing that a notebook could not call.

In reading order: `main.py` (the commands, and errors as one line), `options.py` (arguments of several commands), `place.py`
(place, compare, evaluate), `measure.py` (run, profile, bench), `train.py`, `inspect.py` (devices, planners, zoo, report, doctor),
`run_placed.py` (run without typer), `examples.py` (for every help), `completion.py` (names for the Tab key), `output.py`.
"""

__all__: list[str] = []

"""Files that are damaged or meant to do harm: each is read or refused in one line, in time, in little memory, writing nothing.

In reading order: `folder.py` (an input: a few files by name), `seeds.py` (files that are right, to begin with), `documents/` (small
results of benches, cut out of real ones), `mutations/` (what is done to them), `targets.py` (what reads them, and what follows),
`limits.py` (a process that may do little), `inputs.py` (one input after the other in it, by chance or guided by coverage),
`watch.py` (the process that waits for it), `suite.py` (all targets).
"""

__all__: list[str] = []

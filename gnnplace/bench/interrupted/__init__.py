"""Commands that are killed at random moments and started again: nothing is half-written, nothing is lost but the time.

In reading order: `commands.py` (what is killed), `whole.py` (what must hold of the files, whenever that was), `kill.py` (one kill
and the next start), `suite.py` (many of them, as `gnnplace bench interrupted`).
"""

__all__: list[str] = []

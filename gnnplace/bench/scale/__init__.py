"""How time, memory and quality grow with the number of ops.

Reading order: `cases` (which graphs on which devices), `stages` (seconds and peak memory of a stage), `run` (one case, from file to
placement), `suite` (all of them, with slopes).
"""

__all__: list[str] = []

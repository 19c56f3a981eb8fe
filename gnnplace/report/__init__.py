"""Draws a record, computes nothing that is not in it.

In reading order: `answer.py` (the answer in one sentence, and number formats), `tables.py` (text and numbers as HTML), `theme.py` (colours and
axes), `layout.py` (positions of the graph's nodes), `run_charts.py` (memory and progress), `page.py` (the report of a run, from `page.html` and
the scripts in `browser/` and `vendor/`), `trace.py` (the schedule for Perfetto), `pictures.py` (the pictures of a report as files).

Pages of benches: `bench_page.py` (chooses the page of a suite; the papers' tables), `execution_pages.py`, `generalization_page.py`, and
`bench_charts.py`. Their format is defined here, because the benches write it and load no plotting library.
"""

import string
from collections.abc import Iterable

__all__ = ["BENCH_FORMAT", "device_letters", "devices_of_letters"]

BENCH_FORMAT = "gnnplace.bench/1"
_LETTERS = string.digits + string.ascii_lowercase


def device_letters(devices: Iterable[int]) -> str:
    """Encodes the device of every op group as a letter, 0 to 9 and then a to z, which is compact in JSON."""
    return "".join(_LETTERS[device] for device in devices)


def devices_of_letters(letters: str) -> list[int]:
    """Decodes a text that `device_letters` wrote."""
    return [int(letter, 36) for letter in letters]

"""Draws what was saved, computes nothing that was not.

In reading order:

- `run_record.py`: what was saved;
- `answer.py`: the answer in one sentence, and how numbers are said;
- `tables.py`: what is text and numbers;
- `charts/`: what is a picture;
- `page.py`, `page.html`, `page.css`: all of it as one file that needs no network.
"""

from gnnplace.report.page import render_report, write_report
from gnnplace.report.run_record import RunRecord, read_run

__all__ = ["RunRecord", "read_run", "render_report", "write_report"]

"""Draws a record, computes nothing that is not in it.

In reading order: `answer.py` (the answer in one sentence, and number formats), `tables.py` (text and numbers as HTML), `theme.py` (colours and
axes), `layout.py` (positions of the graph's nodes), `run_charts.py` (memory and progress), `page.py` (the report of a run, from `page.html` and
the scripts in `browser/` and `vendor/`), `trace.py` (the schedule for Perfetto), `pictures.py` (the pictures of a report as files).

Pages of benches: `bench_format.py` (what a result and its page share), `bench_charts.py`, `generalization_page.py`, `execution_pages.py`, and
`bench_page.py`, which chooses the page of a suite.
"""

__all__: list[str] = []

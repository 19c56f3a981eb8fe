"""Draws what was saved, computes nothing that was not.

In reading order:

- `run_record.py`: what was saved;
- `answer.py`: the answer in one sentence, and how numbers are said;
- `tables.py`, `steps.py`: what is text and numbers;
- `charts/`: what is a picture;
- `page.py`, `page.html`, `run.css`: all of it as one file that needs no network, in the frame of every page, `frame.html`, `page.css`;
- `browser/`: the scripts of that page, `vendor/`: the libraries that they use;
- `trace.py`: the schedule for Perfetto;
- `browser_page.py`, `pictures.py`: the page in a browser, and its pictures as files;
- `bench_format.py`, `bench_page.py`, `bench.html`, `bench.css`: the same for the tables of a bench;
- `generalization_page.py`, `generalization.html`, `generalization.css`: and for its unseen graphs and devices;
- `measured_page.py`, `measured.html`: and for its searches by execution;
- `fidelity_page.py`, `fidelity.html`: and for simulated against executed seconds.
"""

__all__: list[str] = []

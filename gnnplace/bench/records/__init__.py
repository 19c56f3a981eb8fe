"""Records: the best known placements of graphs on device sets, searched, checked and accepted from anybody.

In reading order: `cases.py` (what there are records of), `searching.py` (a planner on a case), `keeping.py` (a better placement
becomes the record), `checking.py` (simulation and the independent check), `page.py` (the list for readers), `suite.py`
(`gnnplace bench records`). The records are in `models_zoo/records/`.
"""

__all__: list[str] = []

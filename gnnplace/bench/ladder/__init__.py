"""What learning adds: policies under the same search, beside constructions and annealing, from one evaluation to ten seconds.

In reading order: `methods.py` (what is compared, and the budgets), `running.py` (one method on one case), `means.py` (geometric
means with intervals over families), `suite.py` (`gnnplace bench ladder` on the development cases, `gnnplace bench servers` on wide
graphs over several servers, and `gnnplace bench sealed` on cases that nobody has looked at), `encoder.py` (policies of several
trainings, with and without messages, alone and in the search).
"""

__all__: list[str] = []

"""The best known placements of graphs on device sets, one file per record in `cases/`; `README.md` lists them.

A record names its graph (one of the zoo, or a file in `graphs/`) and its devices (a file in `devices/`), and has everything
that others need to compare with it: costs, number of op groups, the placement, its seconds and a lower bound.
`gnnplace.problem("record:NAME")` is the problem of a record, `gnnplace bench records` checks them and accepts better placements.
"""

__all__: list[str] = []

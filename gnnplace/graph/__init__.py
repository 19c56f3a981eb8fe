"""The computation as data: OpGraph, orders, ranks, coarsening; no device, no file format, no time.

In reading order:

- `op_graph.py`: ops, tensors and shared weights as arrays;
- `orders.py`: topological order, cycles, upward ranks;
- `depth_first.py`: topological orders that follow a branch to its end before the next one;
- `json_format.py`: op graphs as `gnnplace.graph/1` documents;
- `clustering.py`: which ops merge, so that the result stays acyclic;
- `coarsen.py`: the smaller graph that merging gives, and the way back;
- `units.py`: what is decided on as one, joined into fewer units without regard to cycles;
- `unit_graph.py`: units, their neighbours, and random connected sets of them.
"""

from gnnplace.graph.coarsen import Coarsening, coarsen
from gnnplace.graph.json_format import graph_from_json, graph_to_json, read_graph, write_graph
from gnnplace.graph.op_graph import Op, OpGraph, SharedWeight, Tensor

__all__ = [
    "Coarsening",
    "Op",
    "OpGraph",
    "SharedWeight",
    "Tensor",
    "coarsen",
    "graph_from_json",
    "graph_to_json",
    "read_graph",
    "write_graph",
]

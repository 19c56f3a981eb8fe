"""The computation as data: OpGraph, orders, ranks, coarsening; no device, no file format, no time.

In reading order:

- `op_graph.py`: ops, tensors and shared weights as arrays;
- `orders.py`: topological orders, cycles, upward ranks;
- `json_format.py`: op graphs as `gnnplace.graph/1` documents;
- `clustering.py`: merges of ops that keep the graph acyclic;
- `coarsen.py`: the smaller graph of merged ops, and the mapping between both graphs;
- `units.py`: larger units of decision, which may form cycles because their ops still run one by one, and the tensors
  that they exchange.
"""

from gnnplace.graph.coarsen import Coarsening, coarsen
from gnnplace.graph.json_format import graph_from_json, graph_to_json, read_graph, write_graph
from gnnplace.graph.op_graph import Op, OpGraph, SharedWeight, Tensor

__all__ = [
    "Coarsening", "Op", "OpGraph", "SharedWeight", "Tensor", "coarsen", "graph_from_json", "graph_to_json", "read_graph",
    "write_graph",
]  # fmt: skip

"""The graph as a DGLGraph, and message passing on it. The only file that imports dgl."""

from __future__ import annotations

import os
import sys
import types
import warnings
from typing import Any

import torch
from torch import Tensor

from gnnplace.evaluation import Problem
from gnnplace.policy.encoder import Messages
from gnnplace.policy.features import GraphFeatures

__all__ = ["DglNeighbours", "dgl_messages", "to_dgl"]


def _import_dgl() -> Any:
    """The dgl module, made to import next to a current torch.

    Its optional part `dgl.graphbolt` loads a library that was built for older versions of torch and fails; nothing here
    needs it, so an empty module stands in. Stating the backend keeps dgl from writing a configuration file to the home directory.
    """
    sys.modules.setdefault("dgl.graphbolt", types.ModuleType("dgl.graphbolt"))
    stated = os.environ.get("DGLBACKEND")
    os.environ["DGLBACKEND"] = "pytorch"
    try:
        with warnings.catch_warnings():
            # dgl's own imports use names that numpy, torch and setuptools have deprecated; its users cannot mend that.
            warnings.filterwarnings("ignore", category=DeprecationWarning)
            warnings.filterwarnings("ignore", category=FutureWarning)
            warnings.filterwarnings("ignore", category=SyntaxWarning, module="dgl")
            import dgl
            import dgl.ops
    finally:
        if stated is None:
            del os.environ["DGLBACKEND"]
        else:
            os.environ["DGLBACKEND"] = stated
    return dgl


dgl = _import_dgl()


def to_dgl(problem: Problem, features: GraphFeatures) -> Any:
    """The DGLGraph of a problem: a node per unit, an edge per pair of units with data between them.

    Node data: `features` `[U, F]` (static), `type_bucket` `[U]`. Edge data: `features` `[E, F]` (static).
    """
    graph = dgl.graph(
        (torch.from_numpy(features.ends[0].copy()), torch.from_numpy(features.ends[1].copy())),
        num_nodes=problem.num_units,
    )
    graph.ndata["features"] = torch.from_numpy(features.nodes)
    graph.ndata["type_bucket"] = torch.from_numpy(features.type_buckets)
    graph.edata["features"] = torch.from_numpy(features.edges)
    return graph


class DglNeighbours:
    """Neighbours on a DGLGraph; the same numbers as `ScatterNeighbours`.

    DGL's operators themselves are called: the same by named data on the graph costs more than the arithmetic at these sizes.
    Where torch's indexing is quicker than DGL's operator for a single end, it is used.
    """

    def __init__(self, graph: Any) -> None:
        """Messages along the edges of `graph`."""
        self._graph = graph
        self._senders = graph.edges()[0]
        self._count = graph.in_degrees().clamp(min=1)[:, None, None].to(torch.float32)

    def mean(self, sent: Tensor, edges: Tensor) -> Tensor:
        """See `Neighbours.mean`."""
        messages = torch.relu(sent.index_select(0, self._senders) + edges)
        # DGL's own mean takes twice as long as its sum: it counts the edges every time.
        mean: Tensor = dgl.ops.copy_e_sum(self._graph, messages) / self._count
        return mean


def dgl_messages(graph: Any) -> Messages:
    """Messages along the edges of `graph` and of its reverse."""
    reverse = dgl.reverse(graph, copy_ndata=False, copy_edata=False)
    return Messages(DglNeighbours(graph), DglNeighbours(reverse))

"""Conversion of a problem to a DGLGraph, and message passing on it. The only file that imports dgl."""

from __future__ import annotations

import os
import sys
import types
import warnings
from typing import Any

import torch
from torch import Tensor

from gnnplace.errors import MissingDependency
from gnnplace.evaluation import Problem
from gnnplace.policy.encoder import MessagePassing
from gnnplace.policy.features import GraphFeatures

__all__ = ["HAS_DGL", "dgl_messages", "to_dgl"]


def _import_dgl() -> Any:
    """The dgl module, made to import beside a current torch; None where dgl is not installed (it has no wheel for Python 3.13).

    Its optional part `dgl.graphbolt` loads a library that was built for older versions of torch and fails. Nothing here
    needs it, so an empty module stands in. With DGLBACKEND set, dgl writes no configuration file to the home directory.
    """
    sys.modules.setdefault("dgl.graphbolt", types.ModuleType("dgl.graphbolt"))
    backend = os.environ.get("DGLBACKEND")
    os.environ["DGLBACKEND"] = "pytorch"
    try:
        with warnings.catch_warnings():
            # dgl's own imports use names that numpy, torch and setuptools have deprecated.
            warnings.filterwarnings("ignore", category=DeprecationWarning)
            warnings.filterwarnings("ignore", category=FutureWarning)
            warnings.filterwarnings("ignore", category=SyntaxWarning)  # where its files are not compiled yet
            import dgl
            import dgl.ops
    except ModuleNotFoundError as error:
        if error.name != "dgl":
            raise
        return None
    finally:
        if backend is None:
            del os.environ["DGLBACKEND"]
        else:
            os.environ["DGLBACKEND"] = backend
    return dgl


dgl = _import_dgl()

HAS_DGL: bool = dgl is not None
"""Whether dgl is installed. Without it the encoder passes its messages in plain torch, with the same weights and results."""


def to_dgl(problem: Problem, features: GraphFeatures) -> Any:
    """The DGLGraph of a problem: a node per unit, an edge per pair of units with data between them.

    Node data: `features` `[U, F]` (static), `type_bucket` `[U]`. Edge data: `features` `[E, F]` (static).

    Raises:
        MissingDependency: dgl is not installed.
    """
    if not HAS_DGL:
        raise MissingDependency("dgl is not installed; it has wheels for Python 3.11 and 3.12")
    graph = dgl.graph(
        (torch.from_numpy(features.ends[0].copy()), torch.from_numpy(features.ends[1].copy())),
        num_nodes=problem.num_units,
    )
    graph.ndata["features"] = torch.from_numpy(features.nodes)
    graph.ndata["type_bucket"] = torch.from_numpy(features.type_buckets)
    graph.edata["features"] = torch.from_numpy(features.edges)
    return graph


class DglEdgeMean:
    """Mean messages on a DGLGraph.

    It calls DGL's operators directly: message functions over named data cost more than the arithmetic at these sizes.
    """

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._sources = graph.edges()[0]
        self._count = graph.in_degrees().clamp(min=1)[:, None, None].to(torch.float32)

    def __call__(self, nodes: Tensor, edges: Tensor) -> Tensor:
        messages = torch.relu(nodes.index_select(0, self._sources) + edges)
        # DGL's own mean takes twice as long as its sum: it counts the edges every time.
        mean: Tensor = dgl.ops.copy_e_sum(self._graph, messages) / self._count
        return mean


def dgl_messages(graph: Any) -> MessagePassing:
    """Message passing on DGL along the edges of `graph` and of its reverse."""
    reverse = dgl.reverse(graph, copy_ndata=False, copy_edata=False)
    return MessagePassing(DglEdgeMean(graph), DglEdgeMean(reverse))

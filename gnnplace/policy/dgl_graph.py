"""Conversion of a problem to a DGLGraph, and message passing on it. The only file that imports dgl."""

import os
import sys
import types
import warnings
from functools import partial
from typing import Any

import torch

from gnnplace.errors import MissingDependency
from gnnplace.evaluation import Problem
from gnnplace.policy.encoder import EdgeMean, MessagePassing
from gnnplace.policy.features import GraphFeatures


def _import_dgl() -> Any:
    """The dgl module beside a current torch; None where dgl is not installed (it has no wheel for Python 3.13).

    An empty module replaces its optional part `dgl.graphbolt`, which loads a library that was built for older versions of torch
    and fails. With DGLBACKEND set, dgl writes no configuration file to the home directory.
    """
    sys.modules.setdefault("dgl.graphbolt", types.ModuleType("dgl.graphbolt"))
    backend = os.environ.get("DGLBACKEND")
    os.environ["DGLBACKEND"] = "pytorch"
    try:
        with warnings.catch_warnings(action="ignore"):  # dgl imports deprecated names of numpy, torch and setuptools
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
    graph = dgl.graph(tuple(torch.tensor(features.ends)), num_nodes=problem.num_units)
    graph.ndata["features"] = torch.from_numpy(features.nodes)
    graph.ndata["type_bucket"] = torch.from_numpy(features.type_buckets)
    graph.edata["features"] = torch.from_numpy(features.edges)
    return graph


def dgl_messages(graph: Any) -> MessagePassing:
    """Message passing on DGL along the edges of `graph` and of its reverse.

    It calls DGL's sum directly: message functions over named data cost more than the arithmetic at these sizes, and DGL's mean counts
    the edges every time, which doubles its time.
    """

    def mean(directed: Any) -> EdgeMean:
        count = directed.in_degrees().clamp(min=1)[:, None, None]
        return EdgeMean(directed.edges()[0], count, partial(dgl.ops.copy_e_sum, directed))

    return MessagePassing(mean(graph), mean(dgl.reverse(graph, copy_ndata=False, copy_edata=False)))

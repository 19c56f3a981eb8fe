"""Wide graphs over several servers, where what leaves a server waits for the network.

Most families are those of training. The graphs are drawn anew, with other seeds than those that development looked at.
"""

from collections.abc import Mapping, Sequence

from gnnplace.bench.generalization.cases import GeneratedGraph, HeldOutCase, generated_graph
from gnnplace.graph.op_graph import OpGraph
from models_zoo.networks.generated import fork_join, layered, random_dag, series_parallel, wavefront, workflow

SERVER_GRAPHS: Mapping[str, GeneratedGraph] = {
    "phases-64": GeneratedGraph("fork_join", fork_join.Settings(num_ops=400, branches=64, length=3), 501),
    "layered-3": GeneratedGraph("layered", layered.Settings(num_ops=400, alpha=3.0, out_degree=3), 502),
    "blocks-12": GeneratedGraph(
        "series_parallel", series_parallel.Settings(num_ops=400, parallel=0.8, branches=12), 503
    ),
    "dag-fat-4": GeneratedGraph("random_dag", random_dag.Settings(num_ops=400, fat=0.8, jump=4), 504),
    "wavefront-20x20": GeneratedGraph("wavefront", wavefront.Settings(rows=20, columns=20), 505),
    "montage-60": GeneratedGraph("workflow", workflow.Settings(width=60), 506),
    "montage-90": GeneratedGraph("workflow", workflow.Settings(width=90, ccr=3.0), 507),
}
_DEVICES = ("servers-2x4", "servers-4x4", "islands-3x5", "islands-2x7")
_MAX_GROUPS = 500
SERVER_CASES: Sequence[HeldOutCase] = [
    HeldOutCase(graph, _MAX_GROUPS, devices) for graph in SERVER_GRAPHS for devices in _DEVICES
]


def server_graph(name: str) -> OpGraph:
    """The graph of this name, one of `SERVER_GRAPHS`."""
    return generated_graph(SERVER_GRAPHS[name].settings, SERVER_GRAPHS[name].seed)


def family_of_server_graph(name: str) -> str:
    """The family of a graph of `SERVER_GRAPHS`."""
    return SERVER_GRAPHS[name].family

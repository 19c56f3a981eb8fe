"""Wide graphs over several servers, where what leaves a server waits for the network.

Most families are those of training. The graphs are drawn anew, with other seeds than those that development looked at.
"""

from collections.abc import Mapping

from gnnplace.bench.generalization.cases import CaseSet, GeneratedGraph, HeldOutCase
from models_zoo.networks.generated import fork_join, layered, random_dag, series_parallel, wavefront, workflow
from models_zoo.networks.generated.sampling import SAMPLED_FAMILIES

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
SERVERS = CaseSet.of(
    (HeldOutCase(graph, _MAX_GROUPS, devices) for graph in SERVER_GRAPHS for devices in _DEVICES),
    SERVER_GRAPHS,
    drawn=SAMPLED_FAMILIES,
)

"""Graphs of random families with random settings, which training draws."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnplace.graph.json_format import graph_to_json
from models_zoo.networks.generated.costs import communication_ratio
from models_zoo.networks.generated.sampling import SAMPLED_FAMILIES, sample_graph


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), num_ops=st.integers(8, 500), family=st.sampled_from(sorted(SAMPLED_FAMILIES)))
def test_a_sampled_graph_has_the_stated_number_of_ops_and_hangs_together(seed: int, num_ops: int, family: str) -> None:
    graph = sample_graph(np.random.default_rng(seed), num_ops, [family])
    assert graph.num_ops == pytest.approx(num_ops, rel=0.2) if family == "wavefront" else graph.num_ops == num_ops
    view: nx.Graph[int] = nx.Graph(zip(*(ends.tolist() for ends in graph.edges), strict=True))
    view.add_nodes_from(range(graph.num_ops))
    assert nx.is_connected(view)
    assert 0.05 * 0.99 <= communication_ratio(graph) <= 8.0 * 1.01


def test_sampling_draws_from_all_families_and_repeats_with_the_seed() -> None:
    names = {sample_graph(np.random.default_rng(seed), 20).name.partition("_20")[0] for seed in range(40)}
    assert {name for name in names if "x" not in name} == {"layered", "series_parallel", "fork_join", "random_dag"}
    assert {name.rsplit("_", 1)[0] for name in names if "x" in name} == {"wavefront"}
    one, again = (graph_to_json(sample_graph(np.random.default_rng(5), 50)) for _ in range(2))
    assert one == again

"""Generated graphs have the ops, the width and the communication that their settings state."""

import dataclasses
import math
from collections import Counter
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnplace.cost.cost_model import RooflineCost
from gnnplace.devices.presets import preset
from gnnplace.errors import UnsupportedModel
from gnnplace.graph.json_format import graph_to_json
from gnnplace.graph.op_graph import OpGraph
from models_zoo.networks.catalog import GENERATED, recipes_of
from models_zoo.networks.generated import (
    butterfly,
    elimination,
    factorization,
    fork_join,
    layered,
    multipole,
    random_dag,
    series_parallel,
    stencil,
    wavefront,
    workflow,
)
from models_zoo.networks.generated.costs import Costs, communication_ratio, latency_ratio, unrelated
from models_zoo.networks.generated.structure import Structure, connected, level_widths

SMALL_OPS = {
    "wavefront": 24, "cholesky": 10, "lu": 14, "qr": 14, "elimination": 14, "fft": 15, "montage": 15, "epigenomics": 31,
    "stencil": 15, "fmm1d": 56, "fmm2d": 416,
}  # fmt: skip
"""Ops of small graphs whose settings state other sizes."""
RECIPES = [recipe for family in sorted(GENERATED) for recipe in recipes_of(family).values()]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def depth(graph: OpGraph) -> int:
    return round(graph.upward_rank(np.ones(graph.num_ops)).max())


def mean_width(graph: OpGraph) -> float:
    return graph.num_ops / depth(graph)


def components(graph: OpGraph) -> int:
    view: nx.Graph[int] = nx.Graph(edges(graph))
    view.add_nodes_from(range(graph.num_ops))
    return nx.number_connected_components(view)


def edges(graph: OpGraph) -> list[tuple[int, int]]:
    return sorted(zip(*(ends.tolist() for ends in graph.edges), strict=True))


def ratio(graph: OpGraph) -> float:
    """Communication to computation on a pair of P100, from published figures alone."""
    edge_s = [2 * (10e-6 + graph.tensor_bytes[graph.consumer_tensor[e]] / 12.6e9) for e in range(len(graph.consumers))]
    compute = {"MatMul": 0.6, "Conv": 0.5}
    op_s = [
        5e-6 + max(flops / (9.3e12 * compute.get(op_type, 0.1)), touched / (732e9 * 0.7))
        for op_type, flops, touched in zip(graph.op_types, graph.flops, graph.bytes_accessed, strict=True)
    ]
    return float(np.mean(edge_s) / np.mean(op_s))


def check(graph: OpGraph, num_ops: int, costs: Costs) -> None:
    producers, consumers = graph.edges
    assert graph.num_ops == num_ops
    assert (producers < consumers).all()
    assert len(set(edges(graph))) == len(producers)
    assert components(graph) == 1
    assert ratio(graph) == pytest.approx(costs.ccr, rel=0.05)
    op_s = RooflineCost().op_time_s(graph, preset("p100x2"))[:, 0]
    assert op_s.mean() == pytest.approx(costs.op_time_s, rel=1e-6)
    read = np.bincount(consumers, graph.tensor_bytes[graph.consumer_tensor], minlength=num_ops)
    np.testing.assert_array_equal(graph.bytes_accessed, read + graph.tensor_bytes + graph.memory_bytes)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_every_small_recipe_keeps_what_its_settings_state(recipe: Any) -> None:
    graph = recipe.build(recipe.small)
    assert isinstance(graph, OpGraph)
    stated = getattr(recipe.small, "num_ops", None) or SMALL_OPS[recipe.name.split("_")[0]]
    check(graph, stated, recipe.small)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_the_seed_decides_a_graph(recipe: Any) -> None:
    first, again = recipe.build(recipe.small), recipe.build(recipe.at("small", {"seed": "0"}))
    other = recipe.build(recipe.at("small", {"seed": "1"}))
    assert graph_to_json(first) == graph_to_json(again)
    assert first.flops.tolist() != other.flops.tolist()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    num_ops=st.integers(2, 400),
    alpha=st.floats(0.1, 5.0),
    out_degree=st.integers(1, 6),
    ccr=st.floats(0.1, 4.0),
    spread=st.floats(0.0, 1.0),
)
def test_layered_graphs_of_any_settings_are_sound(
    seed: int, num_ops: int, alpha: float, out_degree: int, ccr: float, spread: float
) -> None:
    wished = layered.Settings(
        num_ops=num_ops, alpha=alpha, out_degree=out_degree, ccr=ccr, size_spread=spread, intensity_spread=spread
    )
    graph = layered.layered(wished, rng(seed))
    check(graph, num_ops, wished)
    # Every edge leads from one layer to the next, so all paths between two ops are of one length.
    producers, consumers = graph.edges
    level = np.zeros(num_ops, dtype=np.int64)
    for producer, consumer in zip(producers, consumers, strict=True):
        level[consumer] = max(level[consumer], level[producer] + 1)
    assert (level[consumers] - level[producers] == 1).all()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    num_ops=st.integers(2, 300),
    parallel=st.floats(0.0, 1.0),
    branches=st.integers(2, 9),
)
def test_series_parallel_graphs_of_any_settings_shrink_to_one_edge(
    seed: int, num_ops: int, parallel: float, branches: int
) -> None:
    wished = series_parallel.Settings(num_ops=num_ops, parallel=parallel, branches=branches)
    graph = series_parallel.series_parallel(wished, rng(seed))
    check(graph, num_ops, wished)
    view = nx.DiGraph(edges(graph))
    # Valdes, Tarjan and Lawler: ops with one way in and out vanish, parallel edges become one, until one edge is left.
    while passed := [op for op in view if view.in_degree(op) == 1 and view.out_degree(op) == 1]:
        for op in passed:
            view.add_edge(*view.predecessors(op), *view.successors(op))
            view.remove_node(op)
    assert sorted(view.edges()) == [(0, num_ops - 1)]


@settings(max_examples=40, deadline=None)
@given(num_ops=st.integers(2, 300), branches=st.integers(1, 20), length=st.integers(1, 9))
def test_fork_join_graphs_of_any_settings_begin_and_end_with_one_op(num_ops: int, branches: int, length: int) -> None:
    wished = fork_join.Settings(num_ops=num_ops, branches=branches, length=length)
    graph = fork_join.fork_join(wished, rng())
    check(graph, num_ops, wished)
    producers, consumers = graph.edges
    assert set(range(num_ops)) - set(consumers.tolist()) == {0}
    assert set(range(num_ops)) - set(producers.tolist()) == {num_ops - 1}


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    num_ops=st.integers(2, 300),
    method=st.sampled_from(["levels", "ordered"]),
    fat=st.floats(0.0, 1.0),
    regularity=st.floats(0.0, 1.0),
    density=st.floats(0.0, 1.0),
    jump=st.integers(1, 6),
    degree=st.floats(0.05, 5.0),
)
def test_random_graphs_of_any_settings_are_sound(seed: int, num_ops: int, **values: Any) -> None:
    wished = random_dag.Settings(num_ops=num_ops, **values)
    check(random_dag.random_dag(wished, rng(seed)), num_ops, wished)


def test_small_graphs_have_the_edges_of_a_drawing() -> None:
    graph = fork_join.fork_join(fork_join.Settings(num_ops=9, branches=2, length=2), rng())
    assert edges(graph) == [(0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 5), (5, 6), (5, 7), (6, 8), (7, 8)]
    graph = wavefront.wavefront(wavefront.Settings(rows=2, columns=2, neighbours=3), rng())
    assert edges(graph) == [(0, 1), (0, 2), (0, 3), (1, 3), (2, 3)]


def test_layers_have_alpha_times_the_root_of_all_ops() -> None:
    for alpha in (0.5, 1.0, 2.0):
        widths = [mean_width(layered.layered(layered.Settings(num_ops=2500, alpha=alpha), rng(s))) for s in range(8)]
        assert np.mean(widths) == pytest.approx(alpha * math.sqrt(2500), rel=0.15)


def test_levels_of_a_random_graph_have_a_power_of_all_ops() -> None:
    for fat in (0.2, 0.5, 0.7):
        wished = random_dag.Settings(num_ops=3000, fat=fat, jump=1)
        widths = [mean_width(random_dag.random_dag(wished, rng(seed))) for seed in range(8)]
        assert np.mean(widths) == pytest.approx(3000**fat, rel=0.25)


def test_a_regular_random_graph_has_levels_of_one_width() -> None:
    assert set(level_widths(100, 10, 10, rng()).tolist()) == {10}
    assert len(set(level_widths(1000, 1, 20, rng()).tolist())) > 5


def test_more_edges_make_an_ordered_graph_narrower_and_are_as_many_as_stated() -> None:
    graphs = [
        random_dag.random_dag(random_dag.Settings(num_ops=1000, method="ordered", degree=degree), rng())
        for degree in (1.0, 4.0)
    ]
    assert mean_width(graphs[0]) > 2 * mean_width(graphs[1])
    assert len(graphs[1].consumers) == pytest.approx(4000, rel=0.01)


def test_the_parallel_setting_widens_series_parallel_graphs() -> None:
    chosen = [series_parallel.Settings(num_ops=1000, parallel=parallel) for parallel in (0.0, 0.3, 0.6, 0.9)]
    widths = [np.mean([mean_width(series_parallel.series_parallel(each, rng(s))) for s in range(8)]) for each in chosen]
    assert widths[0] == 1.0
    assert widths == sorted(widths)
    assert widths[3] > 2 * widths[1]


def test_branches_are_the_ops_that_run_side_by_side() -> None:
    graph = fork_join.fork_join(fork_join.Settings(num_ops=1 + 5 * 61, branches=10, length=6), rng())
    assert depth(graph) == 1 + 5 * 7
    grid = wavefront.wavefront(wavefront.Settings(rows=7, columns=30), rng())
    assert depth(grid) == 7 + 30 - 1


def test_the_ratio_is_that_of_the_cost_model_and_falls_on_a_faster_link() -> None:
    graph = layered.layered(layered.Settings(num_ops=300, ccr=2.0), rng())
    assert communication_ratio(graph) == pytest.approx(2.0, rel=1e-3)
    assert communication_ratio(graph) == pytest.approx(ratio(graph))
    assert latency_ratio(4e-4) == pytest.approx(0.05)
    assert communication_ratio(graph, preset("a100-sxmx2")) < 0.5 * communication_ratio(graph, preset("a100x2"))


def test_weights_are_the_stated_share_and_belong_to_the_stated_share_of_ops() -> None:
    graph = layered.layered(layered.Settings(num_ops=400, weight_share=0.4, heavy_share=0.25), rng())
    resident, carried = graph.memory_bytes.sum(), graph.tensor_bytes.sum()
    assert resident / (resident + carried) == pytest.approx(0.4, rel=1e-3)
    heavy = [op_type in {"MatMul", "Conv"} for op_type in graph.op_types]
    assert sum(heavy) == 100
    assert (graph.memory_bytes[~np.array(heavy)] == 0).all()


def test_intensity_spreads_op_times_and_no_spread_leaves_equal_ops_equal() -> None:
    same = wavefront.Settings(size_spread=0.0, intensity_spread=0.0, heavy_share=1.0, weight_share=0.0, ccr=0.2)
    even = RooflineCost(
        efficiency=dict.fromkeys(("convolution", "matrix", "other"), RooflineCost().efficiency["matrix"])
    )

    def spread(wished: wavefront.Settings) -> float:
        graph = wavefront.wavefront(wished, rng())
        return float(np.std(np.log(even.op_time_s(graph, preset("p100x2"))[:, 0])))

    assert spread(same) == pytest.approx(0.0, abs=1e-9)
    assert spread(dataclasses.replace(same, intensity_spread=0.5)) == pytest.approx(0.5, rel=0.15)


def test_unrelated_times_stay_within_the_stated_range_and_differ_by_kind_alone() -> None:
    graph, topology = layered.layered(layered.Settings(), rng()), preset("k40x2+v100")
    base = RooflineCost().op_time_s(graph, topology)
    found = RooflineCost().op_time_s(unrelated(graph, topology, 1.0, rng()), topology)
    factors = found / base
    assert factors.min() >= 0.5
    assert factors.max() <= 1.5
    assert factors.std() == pytest.approx(1 / math.sqrt(12), rel=0.1)
    np.testing.assert_array_equal(factors[:, 0], factors[:, 1])
    assert abs(np.corrcoef(factors[:, 0], factors[:, 2])[0, 1]) < 0.3
    elsewhere = preset("h100x2")  # its host is a v100's, so its GPUs alone are of another kind
    found = RooflineCost().op_time_s(unrelated(graph, topology, 1.0, rng()), elsewhere)
    np.testing.assert_array_equal(found[:, :2], RooflineCost().op_time_s(graph, elsewhere)[:, :2])


def test_separate_parts_are_joined_by_one_edge_each() -> None:
    level = np.array([0, 0, 0, 1, 1, 2])
    apart = Structure.of(6, np.array([0, 1]), np.array([3, 4]))
    whole = connected(apart, level, rng())
    found = set(zip(whole.producers.tolist(), whole.consumers.tolist(), strict=True))
    assert {(0, 3), (1, 4)} < found
    assert len(found) == 5
    assert all(level[consumer] - level[producer] == 1 for producer, consumer in found)


@pytest.mark.parametrize("method", ["levels", "ordered"])
def test_two_hundred_thousand_ops_can_be_drawn(method: str) -> None:
    wished = random_dag.Settings(num_ops=200_000, method=method, op_time_s=5e-5)
    graph = random_dag.random_dag(wished, rng())
    assert graph.num_ops == 200_000
    assert len(graph.consumers) < 800_000
    assert components(graph) == 1
    assert communication_ratio(graph) == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ccr": 0.01}, "the latency alone makes it 0.04"),
        ({"ccr": 500.0}, "reading and writing the tensors alone"),
        ({"heavy_share": 0.0}, "heavy_share is 0.0"),
        ({"weight_share": 1.0}, "weight_share is 1.0"),
        ({"num_ops": 1}, "num_ops is 1"),
        ({"out_degree": 0}, "out_degree is 0"),
    ],
)
def test_settings_out_of_reach_are_refused_with_the_reason(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModel, match=message):
        layered.layered(layered.Settings(**changes), rng())
    with pytest.raises(UnsupportedModel, match="method is 'magic'; expected levels or ordered"):
        random_dag.random_dag(random_dag.Settings(method="magic"), rng())


@pytest.mark.parametrize(
    ("kind", "num_ops", "path"),
    [
        pytest.param("cholesky", 20, 10, id="4 * 5 * 6 / 6 tasks, 3 per column and the last one"),
        pytest.param("lu", 30, 10, id="16 + 9 + 4 + 1 tasks, 3 per column and the last one"),
        pytest.param("qr", 30, 10, id="16 + 9 + 4 + 1 tasks, panels overlap"),
    ],
)
def test_a_factorisation_of_four_by_four_tiles(kind: str, num_ops: int, path: int) -> None:
    graph = factorization.factorization(factorization.Settings(tiles=4, kind=kind), rng())
    assert (graph.num_ops, depth(graph)) == (num_ops, path)
    assert components(graph) == 1


def test_a_cholesky_factorisation_of_two_by_two_tiles_is_a_chain() -> None:
    graph = factorization.factorization(factorization.Settings(tiles=2), rng())
    assert edges(graph) == [(0, 1), (1, 2), (2, 3)]


def test_gaussian_elimination_has_the_ops_and_edges_of_its_paper() -> None:
    graph = elimination.elimination(elimination.Settings(size=5), rng())
    assert graph.num_ops == (5**2 + 5 - 2) // 2
    assert depth(graph) == 2 * (5 - 1)
    assert edges(graph)[:4] == [(0, 1), (0, 2), (0, 3), (0, 4)]
    assert (1, 5) in edges(graph)  # the first column of the next step becomes its pivot


def test_a_fourier_transform_has_the_ops_of_its_paper_and_every_path_is_equally_long() -> None:
    graph = butterfly.butterfly(butterfly.Settings(points=8), rng())
    assert graph.num_ops == 2 * 8 - 1 + 8 * 3
    assert depth(graph) == 4 + 3
    view = nx.DiGraph(edges(graph))
    assert {nx.shortest_path_length(view, 0, end) for end in range(graph.num_ops - 8, graph.num_ops)} == {6}
    assert all(degree == 2 for node, degree in view.in_degree() if node >= 15)


def test_a_mosaic_projects_compares_corrects_and_adds_all_images() -> None:
    graph = workflow.workflow(workflow.Settings(width=5), rng())
    view = nx.DiGraph(edges(graph))
    overlaps = 3 + 3 + 2 + 1
    assert graph.num_ops == 5 + overlaps + 2 + 5 + 4
    assert view.in_degree(5 + overlaps) == overlaps
    assert depth(graph) == 1 + 1 + 2 + 1 + 4
    assert [node for node in view if not view.out_degree(node)] == [graph.num_ops - 1]


def test_a_genome_is_mapped_in_lanes_of_equal_pipelines() -> None:
    graph = workflow.workflow(workflow.Settings(kind="epigenomics", width=3, lanes=2), rng())
    assert graph.num_ops == 2 * (2 + 4 * 3) + 3
    assert depth(graph) == 1 + 4 + 1 + 3
    assert components(graph) == 1


def test_a_multipole_method_goes_up_and_down_its_tree_and_across_each_level() -> None:
    graph = multipole.multipole(multipole.Settings(dimensions=1, levels=3), rng())
    view = nx.DiGraph(edges(graph))
    sorts, evaluations = range(8), range(48, 56)
    assert graph.num_ops == 8 + 8 + 4 + 4 + 8 + 8 + 8 + 8
    assert [node for node in view if not view.in_degree(node)] == [*sorts]
    assert [node for node in view if not view.out_degree(node)] == [*evaluations]
    assert depth(graph) == 1 + 2 + 1 + 1 + 1
    assert all(nx.has_path(view, leaf, result) for leaf in sorts for result in evaluations)
    assert [view.in_degree(op) for op in range(40, 48)] == [2, 3, 3, 3, 3, 3, 3, 2]


def test_a_cell_within_a_square_reads_27_far_cells_and_9_near_ones() -> None:
    view = nx.DiGraph(edges(multipole.multipole(multipole.Settings(levels=4), rng())))
    degrees = Counter(degree for _, degree in view.in_degree())
    assert max(degrees) == 27
    assert degrees[27] == 4**2 + 12**2
    assert degrees[9] == 14**2


def test_a_stencil_reads_its_neighbours_of_the_step_before_around_the_ring() -> None:
    graph = stencil.stencil(stencil.Settings(blocks=5, steps=3), rng())
    found = edges(graph)
    assert (graph.num_ops, len(found), depth(graph)) == (15, 2 * 5 * 3, 3)
    assert [producer for producer, consumer in found if consumer == 5] == [0, 1, 4]


@pytest.mark.parametrize(
    ("make", "wished", "message"),
    [
        (factorization.factorization, factorization.Settings(tiles=1), "tiles is 1"),
        (factorization.factorization, factorization.Settings(kind="svd"), "expected cholesky, lu, qr"),
        (elimination.elimination, elimination.Settings(size=2), "size is 2"),
        (butterfly.butterfly, butterfly.Settings(points=24), "expected a power of two"),
        (workflow.workflow, workflow.Settings(kind="ligo"), "expected montage, epigenomics"),
        (multipole.multipole, multipole.Settings(dimensions=3), "expected 1 or 2"),
        (multipole.multipole, multipole.Settings(levels=2), "expected 3 to 9"),
        (stencil.stencil, stencil.Settings(blocks=2), "more than twice the reach"),
    ],
)
def test_a_structure_that_cannot_be_is_refused(make: Any, wished: Any, message: str) -> None:
    with pytest.raises(UnsupportedModel, match=message):
        make(wished, rng())

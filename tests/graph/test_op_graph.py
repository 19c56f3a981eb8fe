"""Op graphs: arrays, orders, refused graphs, and the file format."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnplace.errors import InvalidGraph
from gnnplace.graph.json_format import FORMAT, graph_from_json, graph_to_json, read_graph, read_op_types, write_graph
from gnnplace.graph.op_graph import Op, OpGraph, SharedWeight, Tensor
from gnnplace.graph.orders import depth_first_order
from tests.problems import random_reads


def diamond() -> OpGraph:
    ops = [Op("top", time_s={"gpu": 1.0}), Op("left", time_s={"gpu": 2.0, "g0": 3.0}), Op("right"), Op("bottom")]
    tensors = [Tensor("left", 4, ("bottom",)), Tensor("top", 8, ("right", "left")), Tensor("right", 2, ("bottom",))]
    return OpGraph.build("diamond", ops, tensors, [SharedWeight(5, ("left", "right"))])


def test_tensors_follow_their_producers_and_inputs_lead_back_to_them() -> None:
    graph = diamond()
    assert graph.tensor_producer.tolist() == [0, 1, 2]
    assert graph.consumers_of(0).tolist() == [1, 2]
    assert graph.inputs_of(3).tolist() == [1, 2]
    assert graph.topological_order.tolist() == [0, 1, 2, 3]
    assert [edge.tolist() for edge in graph.edges] == [[0, 0, 1, 2], [1, 2, 3, 3]]
    assert not any(array.flags.writeable for array in (graph.topological_order, *graph.edges, graph.input_tensors))


def test_the_networkx_view_has_the_same_ops_and_bytes() -> None:
    edges = {(a, b): size for a, b, size in diamond().to_networkx().edges(data="bytes")}
    assert edges == {("top", "left"): 8, ("top", "right"): 8, ("left", "bottom"): 4, ("right", "bottom"): 2}
    pair = OpGraph.build("pair", [Op("a"), Op("b")], [Tensor("a", 4, ("b",)), Tensor("a", 8, ("b",))])
    assert list(pair.to_networkx().edges(data="bytes")) == [("a", "b", 12)]


def test_upward_ranks_add_ops_and_edges_and_the_longest_path_adds_ops_alone() -> None:
    graph = diamond()
    costs = np.array([1.0, 5.0, 2.0, 1.0])
    assert graph.upward_rank(costs, np.array([0.0, 9.0, 0.0, 0.0])).tolist() == [13.0, 6.0, 3.0, 1.0]
    assert graph.upward_rank(costs).max() == 7.0
    assert OpGraph.build("empty", []).upward_rank(np.zeros(0)).tolist() == []


def test_a_depth_first_order_finishes_a_branch_before_the_next_begins() -> None:
    graph = diamond()
    for priority, expected in (([0.0, 2, 1, 0], [0, 1, 2, 3]), ([0.0, 1, 2, 0], [0, 2, 1, 3])):
        order = depth_first_order(graph.successor_offsets, graph.successors, np.array(priority))
        assert order.tolist() == expected
    ops = [Op(name) for name in ("root", "l0", "r0", "l1", "r1")]
    tensors = [Tensor("root", 1, ("l0", "r0")), Tensor("l0", 1, ("l1",)), Tensor("r0", 1, ("r1",))]
    graph = OpGraph.build("two branches", ops, tensors)
    order = depth_first_order(graph.successor_offsets, graph.successors, np.array([0.0, 1, 2, 0, 0]))
    assert [graph.op_names[op] for op in order] == ["root", "r0", "r1", "l0", "l1"]


def test_producers_come_before_consumers_in_depth_first_orders_of_any_priority() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        graph = random_reads(rng, 40, (1, 2))
        order = depth_first_order(graph.successor_offsets, graph.successors, rng.random(40))
        place = np.argsort(order)
        producers, consumers = graph.edges
        assert sorted(order) == list(range(40))
        assert (place[producers] < place[consumers]).all()


def test_an_op_that_reads_a_tensor_twice_is_its_consumer_once() -> None:
    graph = OpGraph.build("g", [Op("a"), Op("b")], [Tensor("a", 1, ("b", "b"))])
    assert graph.consumers.tolist() == [1]


def test_arrays_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        diamond().flops[0] = 1.0


@pytest.mark.parametrize(
    ("ops", "tensors", "message"),
    [
        ([Op("a"), Op("a")], [], "two ops are named 'a'"),
        ([Op("a")], [Tensor("b", 1)], "names the op 'b'"),
        ([Op("a")], [Tensor("a", 1, ("z",))], "names the op 'z'"),
        ([Op("a"), Op("b")], [Tensor("a", 1, ("b",)), Tensor("b", 1, ("a",))], r"has a cycle \((a -> b -> a|b -> a -> b)\)"),
        ([Op("a")], [Tensor("a", 1, ("a",))], r"has a cycle \(a -> a\)"),
        ([Op("a", stage=2**70)], [], "stage of op 'a' has too many digits"),
        ([Op("a", stage=-3)], [], "stage of op 'a' is -3; expected 0 to"),
        ([Op("a")], [Tensor("a", 2**70)], "a tensor of op 'a' has too many digits"),
        ([Op("a", flops=float("nan"))], [], "flops of op 'a' is nan"),
        ([Op("a", bytes_accessed=-1.0)], [], "bytes_accessed of op 'a' is -1.0"),
        ([Op("a", memory_bytes=-1)], [], "memory_bytes of op 'a' is -1"),
        ([Op("a", time_s={"gpu": float("inf")})], [], "time_s of 'gpu' of op 'a' is inf"),
        ([Op("a")], [Tensor("a", -5)], "a tensor of op 'a' has -5 bytes"),
    ],
)  # fmt: skip
def test_a_graph_that_breaks_a_rule_is_refused_by_name(ops: list[Op], tensors: list[Tensor], message: str) -> None:
    with pytest.raises(InvalidGraph, match=message):
        OpGraph.build("g", ops, tensors)


def test_a_shared_weight_of_negative_size_is_refused() -> None:
    with pytest.raises(InvalidGraph, match="a shared weight has -5 bytes"):
        OpGraph.build("g", [Op("a"), Op("b")], shared_weights=[SharedWeight(-5, ("a", "b"))])


def test_the_message_about_a_long_cycle_is_short() -> None:
    names = [f"o{i}" for i in range(5000)]
    tensors = [Tensor(name, 1, (names[(i + 1) % 5000],)) for i, name in enumerate(names)]
    with pytest.raises(InvalidGraph) as error:
        OpGraph.build("ring", [Op(name) for name in names], tensors)
    assert len(str(error.value)) < 200


def test_a_graph_survives_its_file(tmp_path: Path) -> None:
    write_graph(diamond(), tmp_path / "g.json")
    read = read_graph(tmp_path / "g.json")
    assert read_op_types(tmp_path / "g.json") == frozenset(read.op_types)
    assert graph_to_json(read) == graph_to_json(diamond())
    assert read.memory_bytes.tolist() == [0, 0, 0, 0]
    assert read.weight_bytes.tolist() == [5]
    assert np.isnan(read.time_s["g0"]).tolist() == [True, False, True, True]


def test_a_reader_that_knows_no_shared_weights_counts_enough() -> None:
    document = graph_to_json(diamond())
    assert [op["memory_bytes"] for op in document["ops"]] == [0, 5, 5, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "expected 'gnnplace.graph/1'"),
        ({"ops": {}}, "'ops' is {}; expected a list"),
        ({"ops": [{}]}, "'name' is None"),
        ({"ops": [{"name": "a", "flops": "many"}]}, "'flops' of op 'a' is 'many'; expected int or float"),
        ({"ops": [{"name": "a", "flops": True}]}, "'flops' of op 'a' is True"),
        ({"ops": [{"name": "a", "time_s": {"gpu": "NaN"}}]}, "time_s of op 'a' on 'gpu'"),
        ({"ops": [{"name": "a", "devices": [1]}]}, "'devices' of op 'a'"),
        ({"tensors": [{"producer": "a", "bytes": 1.5}]}, "'bytes' is 1.5"),
        ({"tensors": [{"producer": "a", "bytes": 1, "consumers": "b"}]}, "'consumers' is 'b'"),
        ({"shared_weights": [{"bytes": 9, "consumers": ["a"]}]}, "less than the 9 bytes of its shared weights"),
    ],
)
def test_a_file_that_breaks_the_format_is_refused_with_its_place(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidGraph, match=message):
        graph_from_json({"format": FORMAT, "name": "g", "ops": [{"name": "a"}], "tensors": [], **change})


@pytest.mark.parametrize(
    "text", ["", "{", "[1, 2", "nonsense", '{"format": "gnnplace.graph/1", "ops": [{"name": "a", "flops": NaN}]}']
)
def test_a_file_that_is_broken_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(InvalidGraph, match=r"broken\.json"):
        read_graph(path)
    with pytest.raises(InvalidGraph, match="cannot be read"):
        read_graph(tmp_path / "absent.json")


def test_only_the_name_is_required_of_an_op() -> None:
    graph = graph_from_json({"format": FORMAT, "name": "g", "ops": [{"name": "a"}], "tensors": []})
    assert (graph.op_types, graph.flops.tolist(), graph.allowed_devices) == (("Unknown",), [0.0], (None,))

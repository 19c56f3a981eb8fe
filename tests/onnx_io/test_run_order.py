"""The emulated run order of ONNX Runtime, and lists of nodes that lead to a wanted one."""

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from gnnplace.onnx_io.run_order import listed_to_run, runtime_order
from tests.kernel_order import kernels_run

Producers = dict[int, set[int]]


def random_producers(seed: int, count: int = 40) -> Producers:
    """A graph whose edges lead to higher numbers."""
    rng = np.random.default_rng(seed)
    return {node: {other for other in range(max(0, node - 11), node) if rng.random() < 0.2} for node in range(count)}


def session_order(listed: list[int], producers: Producers, folder: Path) -> list[int]:
    """The order in which a session of ONNX Runtime runs a sum per node, listed like this."""
    inputs = {node: [f"v{other}" for other in sorted(read)] or ["x"] for node, read in producers.items()}
    nodes = [helper.make_node("Sum", inputs[node], [f"v{node}"], name=f"n{node}") for node in listed]
    value = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", *(f"v{n}" for n in producers))
    ]
    outputs = [one for one in value if one.name != "x" and int(one.name[1:]) not in set().union(*producers.values())]
    model = helper.make_model(
        helper.make_graph(nodes, "g", value[:1], outputs), opset_imports=[helper.make_opsetid("", 17)], ir_version=10
    )
    feed, level = {"x": np.ones(2, np.float32)}, ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return [int(name[1:]) for name in kernels_run(model.SerializeToString(), feed, level, folder)]


def topological(listed: list[int], producers: Producers) -> bool:
    place = {node: position for position, node in enumerate(listed)}
    return all(place[other] < place[node] for node, read in producers.items() for other in read)


@pytest.mark.parametrize("seed", range(6))
def test_a_session_runs_nodes_in_the_emulated_order(seed: int, tmp_path: Path) -> None:
    producers = random_producers(seed)
    listed = listed_to_run(np.random.default_rng(seed).permutation(40).tolist(), producers)  # any topological list
    assert session_order(listed, producers, tmp_path) == runtime_order(listed, producers)


@pytest.mark.parametrize("seed", range(20))
def test_the_list_for_an_order_keeps_producers_first_and_leads_near_the_order(seed: int) -> None:
    producers = random_producers(seed)
    wanted = runtime_order(list(producers), producers)  # an order that a session can have
    listed = listed_to_run(wanted, producers)
    assert sorted(listed) == sorted(producers)
    assert topological(listed, producers)
    at_place = sum(node == other for node, other in zip(runtime_order(listed, producers), wanted, strict=True))
    as_they_run = sum(node == other for node, other in zip(runtime_order(wanted, producers), wanted, strict=True))
    assert at_place >= max(as_they_run, 1)


def test_a_chain_of_branches_runs_in_the_wanted_order_exactly() -> None:
    # Blocks of three branches of two nodes each, which the next node joins.
    producers: Producers = {0: set()}
    for first in range(0, 35, 7):
        for branch in (1, 3, 5):
            producers[first + branch], producers[first + branch + 1] = {first}, {first + branch}
        producers[first + 7] = {first + 2, first + 4, first + 6}
    wanted = list(range(len(producers)))
    assert runtime_order(wanted, producers) != wanted
    assert runtime_order(listed_to_run(wanted, producers), producers) == wanted

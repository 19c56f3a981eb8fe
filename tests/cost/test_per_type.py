"""Random factors per op type and kind of device."""

import numpy as np
import pytest

from gnnplace.cost.cost_model import PerTypeCost, RooflineCost
from gnnplace.devices.presets import preset
from gnnplace.graph.op_graph import Op, OpGraph

TOPOLOGY = preset("k40x2+v100")


def graph_of(*types: str) -> OpGraph:
    return OpGraph.build("g", [Op(f"{kind}_{i}", kind, flops=1e9 * (i + 1)) for i, kind in enumerate(types)])


def factors(cost: PerTypeCost, *types: str) -> np.ndarray:
    graph = graph_of(*types)
    return cost.op_time_s(graph, TOPOLOGY) / cost.base.op_time_s(graph, TOPOLOGY)


def test_a_factor_depends_on_type_and_kind_alone() -> None:
    cost = PerTypeCost(RooflineCost(), seed=3, spread=0.5)
    both = factors(cost, "Conv", "MatMul", "Conv")
    assert both[0] == pytest.approx(both[2])
    assert both[:, 0] == pytest.approx(both[:, 1])  # two devices of one kind
    assert abs(both[0, 0] - both[0, 2]) > 1e-3
    assert abs(both[0, 0] - both[1, 0]) > 1e-3
    assert factors(cost, "MatMul")[0] == pytest.approx(both[1])
    assert both[0, 0] == pytest.approx(cost.factor("Conv", "k40"))


def test_without_spread_nothing_changes_and_the_spread_is_that_of_the_logarithms() -> None:
    assert (factors(PerTypeCost(RooflineCost(), 0), "Conv") == 1.0).all()
    cost = PerTypeCost(RooflineCost(), 0, spread=0.4)
    logs = np.log([cost.factor(f"Type{i}", "a") for i in range(500)])
    assert logs.std() == pytest.approx(0.4, rel=0.15)
    assert abs(logs.mean()) < 0.08

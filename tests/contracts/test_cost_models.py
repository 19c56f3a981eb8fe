"""Every cost model keeps the same promises."""

import numpy as np
import pytest

from gnnplace.cost.cost_model import CostModel, PerTypeCost, RooflineCost
from gnnplace.cost.measured import CostStore, KindCosts, MeasuredCost
from gnnplace.devices.presets import preset
from gnnplace.graph.op_graph import Op, OpGraph, Tensor

GRAPH = OpGraph.build(
    "g",
    [
        Op("conv", "Conv", flops=1e9, bytes_accessed=1e6, signature="conv-signature"),
        Op("gpu only", "MatMul", flops=1e6, bytes_accessed=1e4, devices=("k40",)),
        Op("stated", time_s={"k40": 0.25, "k40:1": 0.5}),
        Op("nothing"),
    ],
    [Tensor("conv", 8, ("gpu only",))],
)
MODELS = [
    RooflineCost(),
    MeasuredCost(CostStore()),
    MeasuredCost(CostStore({"k40": KindCosts({"conv-signature": 0.125})})),
    PerTypeCost(RooflineCost(), seed=1),
]


@pytest.mark.parametrize("model", MODELS, ids=["roofline", "nothing measured", "measured", "per type"])
def test_seconds_are_there_for_every_op_on_every_device(model: CostModel) -> None:
    topology = preset("k40x2")
    seconds = model.op_time_s(GRAPH, topology)
    assert isinstance(model, CostModel)
    assert seconds.shape == (4, 3)
    assert not np.isnan(seconds).any()
    assert (seconds >= 0).all()
    assert np.isinf(seconds).tolist() == [[False] * 3, [False, False, True], [False] * 3, [False] * 3]
    assert seconds[2, :2].tolist() == [0.25, 0.5]
    assert model.op_time_s(GRAPH, topology).tolist() == seconds.tolist()
    assert model.calibrated(topology).device_names == topology.device_names


def test_what_was_measured_wins_over_the_roofline() -> None:
    assert MODELS[2].op_time_s(GRAPH, preset("k40x2"))[0, :2].tolist() == [0.125, 0.125]

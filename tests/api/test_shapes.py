"""A placement for several sizes of the inputs."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import gnnplace
from gnnplace.api.options import PlaceOptions, shapes_of, sizes_between
from gnnplace.api.problem_setup import measurement_store
from gnnplace.devices.detect import allowed_cores
from gnnplace.errors import UnsupportedModel
from gnnplace.measuring.timing import StoppingRule
from gnnplace.measuring.worker_process import Setup, WorkerProcess
from gnnplace.objectives import DimsObjective
from gnnplace.onnx_io.read import read_onnx
from gnnplace.placement import Placement
from gnnplace.sim.example import diamond

DEVICES = "k40x2"


@pytest.fixture(scope="module")
def two_towers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Products whose time grows with the batch beside ones whose time does not."""
    nodes, weights, outputs = [], [], []
    for tower in range(3):
        value = "x" if tower < 2 else "c"
        for layer in range(3):
            weight = np.ones((256, 256), np.float32)
            weights.append(onnx.numpy_helper.from_array(weight, f"w{tower}.{layer}"))
            nodes.append(helper.make_node("MatMul", [value, f"w{tower}.{layer}"], [f"v{tower}.{layer}"]))
            value = f"v{tower}.{layer}"
        outputs.append(helper.make_tensor_value_info(value, TensorProto.FLOAT, None))
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "length", 256]),
        helper.make_tensor_value_info("c", TensorProto.FLOAT, [512, 256]),
    ]
    graph = helper.make_graph(nodes, "towers", inputs, outputs, weights)
    path = tmp_path_factory.mktemp("model") / "towers.onnx"
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def alone_s(path: Path, placement: Placement, dims: dict[str, int]) -> float:
    return float(gnnplace.evaluate(path, DEVICES, placement, PlaceOptions(dims=dims))["makespan_s"])


@pytest.mark.parametrize("objective", ["worst", "mean"])
@pytest.mark.parametrize("planner", ["single", "round-robin", "heft", "segments", "greedy", "annealing", "genetic"])
def test_a_plan_for_several_shapes_has_the_worst_or_mean_of_their_times(
    two_towers: Path, planner: str, objective: DimsObjective
) -> None:
    options = PlaceOptions(
        planner, evaluations=150, dims={"batch": (1, 8, 64), "length": 4}, dims_objective=objective, max_groups=6
    )
    plan = gnnplace.place(two_towers, DEVICES, options)
    seconds = [alone_s(two_towers, plan.placement, {"batch": batch, "length": 4}) for batch in (64, 8, 1)]
    assert plan.makespan_s == pytest.approx(max(seconds) if objective == "worst" else sum(seconds) / 3)
    assert plan.bound.value_s <= plan.makespan_s
    assert plan.shapes == [
        {"dims": {"batch": batch, "length": 4}, "makespan_s": pytest.approx(one_s)}
        for batch, one_s in zip((64, 8, 1), seconds, strict=True)
    ]
    assert gnnplace.evaluate(two_towers, DEVICES, plan.placement, options)["makespan_s"] == pytest.approx(
        plan.makespan_s
    )


def test_the_mean_is_minimised_where_the_worst_is_equal(two_towers: Path) -> None:
    dims = {"batch": (1, 512), "length": 4}
    worst, mean = (
        gnnplace.place(
            two_towers, DEVICES, PlaceOptions("annealing", evaluations=800, dims=dims, dims_objective=objective)
        )
        for objective in ("worst", "mean")
    )
    total = [
        sum(alone_s(two_towers, plan.placement, {"batch": batch, "length": 4}) for batch in (1, 512))
        for plan in (worst, mean)
    ]
    assert total[1] <= total[0]
    assert worst.makespan_s <= max(alone_s(two_towers, mean.placement, {"batch": b, "length": 4}) for b in (1, 512))


def test_a_model_object_is_placed_at_the_dimensions_of_the_options(two_towers: Path) -> None:
    read = gnnplace.read_onnx(two_towers)
    plans = [
        gnnplace.place(model, DEVICES, PlaceOptions("single", dims={"batch": 256})) for model in (read, two_towers)
    ]
    assert plans[0].makespan_s == plans[1].makespan_s > gnnplace.place(read, DEVICES, PlaceOptions("single")).makespan_s


def test_shapes_are_all_combinations_of_sizes_up_to_a_limit() -> None:
    assert shapes_of({}) == ({},)
    assert shapes_of({"a": (1, 2, 1), "b": 3}) == ({"a": 2, "b": 3}, {"a": 1, "b": 3})
    assert sizes_between(0, 0) == (0,)
    assert sizes_between(3, 4) == (3, 4)
    with pytest.raises(UnsupportedModel, match="make 64 shapes; at most 32"):
        shapes_of({"a": range(1, 9), "b": range(1, 9)})
    with pytest.raises(UnsupportedModel, match="'a' is given no size"):
        shapes_of({"a": ()})


def test_all_shapes_are_profiled_and_every_measured_placement_runs_at_all_of_them(
    two_towers: Path, monkeypatch: pytest.MonkeyPatch, measure_quickly: Callable[[StoppingRule], None]
) -> None:
    measure_quickly(StoppingRule(warmup=1, min_repeats=3, max_repeats=3))
    setups: list[tuple[list[tuple[int, ...]], str]] = []
    begin = WorkerProcess.__init__

    def noted(worker: WorkerProcess, setup: Setup, *rest: float) -> None:
        if shapes := [feed["x"].shape for feed in setup.feeds if "x" in feed]:  # else a probe's
            setups.append((shapes, setup.dims_objective))
        begin(worker, setup, *rest)

    monkeypatch.setattr(WorkerProcess, "__init__", noted)
    core = f"cpu:{allowed_cores()[0]}"
    options = PlaceOptions(
        "single", measure=True, dims={"batch": (1, 2), "length": 4}, dims_objective="mean", evaluations=3
    )
    plan = gnnplace.place(two_towers, core, options)
    assert plan.measured is not None
    assert plan.measured["median_s"] > 0
    assert [shape["dims"]["batch"] for shape in plan.shapes] == [2, 1]
    assert setups == [([(2, 4, 256)], "worst"), ([(1, 4, 256)], "worst"), ([(2, 4, 256), (1, 4, 256)], "mean")]
    sizes = [{"batch": batch, "length": 4} for batch in (2, 1)]
    (known,) = measurement_store().costs("").kinds.values()
    assert all(set(read_onnx(two_towers, dims).graph.signatures) <= known.op_s.keys() for dims in sizes)
    executed = gnnplace.evaluate(two_towers, core, plan.placement, options)
    assert executed["evaluator"] == "measured"
    assert setups[-1] == ([(2, 4, 256), (1, 4, 256)], "mean")


def test_an_op_graph_has_no_dimensions_to_give() -> None:
    graph = diamond().graph
    with pytest.raises(UnsupportedModel, match="an op graph has no symbolic dimensions; leave dims out"):
        gnnplace.place(graph, DEVICES, PlaceOptions("single", dims={"batch": 2}))

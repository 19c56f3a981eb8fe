"""A training step in ONNX: torch's numbers, variables beside their updates, gradients on their weights' stages."""

import json
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from torch import Tensor, nn

from gnnplace.errors import UnsupportedModel
from gnnplace.onnx_io.manifest import write_parts
from gnnplace.onnx_io.model import GROUP_KEY, STAGE_KEY, STATE_KEY
from gnnplace.onnx_io.read import read_onnx
from gnnplace.onnx_io.segments import segments
from gnnplace.running.session import PARTS, Session
from models_zoo.networks.export import comparison
from models_zoo.networks.export.comparison import Case, Comparison, compare, exact, torch_noise, training_case
from models_zoo.networks.export.stages import mark_stages
from models_zoo.networks.export.training_step import training_model
from models_zoo.networks.recipe import Optimizer, StageRule, TorchNetwork

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # the exporter's own
RULE = StageRule(((r"(\d)\.", r"\1"),))


class Chain(nn.Sequential):
    """Two linear layers with batch normalisation between."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)


def network(optimizer: Optimizer = "sgd") -> TorchNetwork:
    torch.manual_seed(0)
    return TorchNetwork(
        Chain(), {"x": torch.randn(5, 3)}, targets={"y": torch.randn(5, 2)},
        loss=nn.functional.mse_loss, optimizer=optimizer,
    )  # fmt: skip


@pytest.fixture(scope="module")
def model() -> ir.Model:
    made = training_model(network())
    mark_stages(made, RULE)
    return made


def saved(model: ir.Model, path: Path) -> Path:
    model.ir_version = 10
    ir.save(model, path)
    return path


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_loss_gradients_moments_and_running_statistics_are_torchs(optimizer: Optimizer, tmp_path: Path) -> None:
    path = saved(training_model(network(optimizer)), tmp_path / "m.onnx")
    case = training_case(network(optimizer))
    found = compare(path, case, "chain")
    assert found.relative_error < 1e-5
    assert {"loss", "1.running_mean.new", "1.num_batches_tracked.new"} <= set(case.expected)
    moments = {"sgd": ("momentum",), "adam": ("first", "second")}[optimizer]
    assert {f"0.weight.{moment}.new" for moment in moments} <= set(case.expected)
    assert not np.array_equal(case.inputs["1.running_mean"], case.expected["1.running_mean.new"])
    assert found.outputs == len(case.expected)


def test_every_parameter_buffer_and_moment_is_state_with_its_replacement(model: ir.Model) -> None:
    state = json.loads(model.metadata_props[STATE_KEY])
    names = {name for name, _ in (*network().module.named_parameters(), *network().module.named_buffers())}
    assert names <= set(state)
    assert {f"{name}.momentum" for name, _ in network().module.named_parameters()} <= set(state)
    assert all(replacement == f"{name}.new" for name, replacement in state.items())


def test_a_variable_is_read_in_one_place_which_shares_a_group_with_its_update(model: ir.Model) -> None:
    weight = next(value for value in model.graph.inputs if value.name == "0.weight")
    (use,) = weight.uses()
    update = next(value for value in model.graph.outputs if value.name == "0.weight.new").producer()
    assert update is not None
    assert use.node.op_type == "Identity"
    assert use.node.metadata_props[GROUP_KEY] == update.metadata_props[GROUP_KEY] == "0.weight"


def test_the_gradient_of_a_weight_is_on_its_stage_even_where_it_reads_values_of_an_earlier_one(model: ir.Model) -> None:
    update = next(value for value in model.graph.outputs if value.name == "3.weight.momentum.new").producer()
    assert update is not None
    gradients = [value.producer() for value in update.inputs if value is not None and not value.is_graph_input()]
    products = [node for node in gradients if node is not None and node.op_type in ("MatMul", "Gemm", "Transpose")]
    assert products
    assert {node.metadata_props[STAGE_KEY] for node in (update, *products)} == {"3"}


def test_torch_agrees_with_itself_where_nothing_is_delicate() -> None:
    assert torch_noise(training_case(network()), training_case(exact(network()))) < 1e-5


def test_more_than_twice_torchs_own_noise_is_refused_and_less_is_noted(tmp_path: Path) -> None:
    path = saved(training_model(network()), tmp_path / "m.onnx")
    case = training_case(network())
    off = Case(
        case.inputs, {name: value * np.float32(1.01) for name, value in case.expected.items() if "num" not in name}
    )
    found = compare(path, off, "chain", lambda _: 0.02)
    assert isinstance(found, Comparison)
    assert found.torch_noise == 0.02
    assert found.relative_error == pytest.approx(0.01, rel=0.05)
    with pytest.raises(UnsupportedModel, match=r"at most 8e-03"):
        compare(path, off, "chain", lambda draw: 0.0005 * (draw + 1))
    assert comparison.NOISE_FACTOR == 2.0


def test_a_gradient_that_is_zero_but_for_rounding_must_be_so_in_onnx_too(tmp_path: Path) -> None:
    path = saved(training_model(network()), tmp_path / "m.onnx")
    case = training_case(network())
    name = "0.weight.momentum.new"
    zero = Case(case.inputs, {**case.expected, name: np.zeros_like(case.expected[name])}, {name: 1e-9})
    with pytest.raises(UnsupportedModel, match=f"'{name}' differs"):
        compare(path, zero, "chain")


@pytest.mark.usefixtures("needs_two_cores")
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_placed_steps_that_keep_their_state_follow_a_plain_session(optimizer: Optimizer, tmp_path: Path) -> None:
    path = saved(training_model(network(optimizer)), tmp_path / "m.onnx")
    pairs: dict[str, str] = json.loads(ir.load(path).metadata_props[STATE_KEY])
    inputs = training_case(network(optimizer)).inputs
    first = {name: inputs[name] for name in pairs}
    batch = {name: value for name, value in inputs.items() if name not in pairs}
    plain = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    losses, state = [], first
    for _ in range(5):
        loss, *values = plain.run(["loss", *pairs.values()], {**batch, **state})
        losses.append(loss)
        state = dict(zip(pairs, values, strict=True))

    found = read_onnx(path)
    rng = np.random.default_rng(2)
    for _ in range(3):
        cut = segments(found.graph, rng.integers(0, 2, found.graph.num_ops).tolist(), found.graph.topological_order)
        write_parts(found, cut, ("cpu:0", "cpu:1"), tmp_path / "placed" / PARTS)
        with Session(tmp_path / "placed") as session:
            loop = session.training_loop(first)
            np.testing.assert_allclose([loop.step(batch, ["loss"])[0] for _ in range(5)], losses, rtol=1e-4)
            for name, value in loop.state().items():
                np.testing.assert_allclose(value, state[name], rtol=1e-3, atol=1e-5)
    assert losses[-1] < losses[0]

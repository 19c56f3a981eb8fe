"""Every decomposition of a backward op gives the gradients of torch's autograd."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from models_zoo.networks.build import build_onnx
from models_zoo.networks.export.decompositions import training_decompositions
from models_zoo.networks.recipe import Recipe, TorchNetwork
from tests.models_zoo.small_networks import built

aten = torch.ops.aten
CONVOLUTIONS: dict[str, tuple[int, dict[str, Any]]] = {
    "1-D": (1, {}),
    "1-D, stride, padding, dilation, groups": (1, {"stride": 2, "padding": 2, "dilation": 2, "groups": 2}),
    "2-D": (2, {}),
    "stride that leaves a rest": (2, {"stride": 2}),
    "stride of 3 over a padded input": (2, {"stride": 3, "padding": 1}),
    "padding": (2, {"padding": 1}),
    "dilation": (2, {"dilation": 2}),
    "groups": (2, {"groups": 2}),
    "one group for each channel": (2, {"groups": 4, "padding": 1}),
    "all of them, differently on each axis": (
        2,
        {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "groups": 2},
    ),
}
POOLS: dict[str, dict[str, Any]] = {
    "windows side by side": {"kernel_size": 2},
    "a rest at the end": {"kernel_size": 2, "stride": 2, "padding": 0},
    "overlapping": {"kernel_size": 3, "stride": 2},
    "padding": {"kernel_size": 3, "stride": 1, "padding": 1},
    "padding and stride": {"kernel_size": 3, "stride": 2, "padding": 1},
    "differently on each axis": {"kernel_size": (3, 2), "stride": (1, 2), "padding": (1, 0)},
    "one more window at the end": {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    "one more window and padding": {"kernel_size": 3, "stride": 3, "padding": 1, "ceil_mode": True},
}
DIVISORS: dict[str, dict[str, Any]] = {
    "padding counted": {"count_include_pad": True},
    "padding not counted": {"count_include_pad": False},
    "own divisor": {"divisor_override": 5},
}


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def pair(value: int | Sequence[int], rank: int = 2) -> list[int]:
    return [value] * rank if isinstance(value, int) else [*value]


def autograd(forward: Callable[..., Tensor], *values: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """A random gradient of the output, and what it is worth at the inputs."""
    leaves = [value.clone().requires_grad_() for value in values]
    output = forward(*leaves)
    gradient = torch.randn_like(output)
    return gradient, torch.autograd.grad(output, leaves, gradient)


@pytest.mark.parametrize(("rank", "options"), CONVOLUTIONS.values(), ids=CONVOLUTIONS)
@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
def test_a_convolution_has_the_gradients_of_autograd(rank: int, options: dict[str, Any], transposed: bool) -> None:
    kinds = (nn.ConvTranspose1d, nn.ConvTranspose2d) if transposed else (nn.Conv1d, nn.Conv2d)
    layer = kinds[rank - 1](4, 8, 3, **options, **({"output_padding": 0} if transposed else {}))
    x = torch.randn(2, 4, 10, 9)[(..., *([0] * (2 - rank)))].contiguous()
    assert layer.bias is not None
    functional = getattr(nn.functional, f"conv_transpose{rank}d" if transposed else f"conv{rank}d")
    weight, bias = layer.weight.detach(), layer.bias.detach()
    gradient, expected = autograd(lambda a, w, b: functional(a, w, b, **options), x, weight, bias)
    backward = training_decompositions()[aten.convolution_backward.default]
    spread = [
        pair(options.get(key, default), rank) for key, default in (("stride", 1), ("padding", 0), ("dilation", 1))
    ]
    found = backward(
        gradient, x, weight, [8], *spread, transposed, [0] * rank, options.get("groups", 1), [True, True, True]
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_an_unused_gradient_is_not_computed() -> None:
    backward = training_decompositions()[aten.convolution_backward.default]
    x, weight = torch.randn(1, 2, 4), torch.randn(2, 2, 1)
    found = backward(x, x, weight, [2], [1], [0], [1], False, [0], 1, [False, True, False])
    assert [value is None for value in found] == [True, False, True]


@pytest.mark.parametrize("groups", [2, 64])
def test_the_gradient_of_grouped_weights_takes_one_convolution_for_all_groups(groups: int) -> None:
    backward = training_decompositions()[aten.convolution_backward.default]
    x, weight = torch.randn(2, 64, 5), torch.randn(64, 64 // groups, 3)

    def weights_only(gradient: Tensor) -> Tensor:
        found: Tensor = backward(gradient, x, weight, None, [1], [1], [1], False, [0], groups, [False, True, False])[1]
        return found

    traced = make_fx(weights_only)(torch.randn(2, 64, 5))
    assert [node.target for node in traced.graph.nodes].count(aten.convolution.default) == 1


@pytest.mark.parametrize("options", POOLS.values(), ids=POOLS)
@pytest.mark.parametrize("dilation", [1, 2])
def test_maximum_pooling_gives_the_gradient_to_the_winner_as_autograd_does(
    options: dict[str, Any], dilation: int
) -> None:
    x = torch.randn(2, 3, 10, 9).relu()  # zeros that draw: the first wins
    gradient, (expected,) = autograd(lambda a: nn.functional.max_pool2d(a, **options, dilation=dilation), x)
    output, indices = nn.functional.max_pool2d(x, **options, dilation=dilation, return_indices=True)
    assert output.shape == gradient.shape
    backward = training_decompositions()[aten.max_pool2d_with_indices_backward.default]
    found = backward(
        gradient, x, pair(options["kernel_size"]), pair(options.get("stride", ())), pair(options.get("padding", 0)),
        pair(dilation), options.get("ceil_mode", False), indices,
    )  # fmt: skip
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("options", POOLS.values(), ids=POOLS)
@pytest.mark.parametrize("divisor", DIVISORS.values(), ids=DIVISORS)
def test_average_pooling_has_the_gradient_of_autograd(options: dict[str, Any], divisor: dict[str, Any]) -> None:
    x = torch.randn(2, 3, 10, 9)
    gradient, (expected,) = autograd(lambda a: nn.functional.avg_pool2d(a, **options, **divisor), x)
    backward = training_decompositions()[aten.avg_pool2d_backward.default]
    found = backward(
        gradient, x, pair(options["kernel_size"]), pair(options.get("stride", ())), pair(options.get("padding", 0)),
        options.get("ceil_mode", False), divisor.get("count_include_pad", True), divisor.get("divisor_override"),
    )  # fmt: skip
    torch.testing.assert_close(found, expected)


class Pooled(nn.Module):
    """Every pool and every kind of convolution, in both ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.plane = nn.Conv2d(2, 8, 3, stride=2, padding=1, dilation=2, groups=2)
        self.separable = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), nn.BatchNorm2d(8))
        self.line = nn.Conv1d(8, 4, 3, stride=2)
        self.up = nn.ConvTranspose1d(4, 4, 3, stride=2, groups=2)

    def forward(self, x: Tensor) -> Tensor:
        """A vector per image."""
        pool = nn.functional
        planes = self.separable(pool.max_pool2d(self.plane(x).relu(), 3, 2, padding=1))
        planes = pool.avg_pool2d(planes, 3, 1, padding=1, count_include_pad=False)
        planes = pool.avg_pool2d(planes, 3, 2, padding=1, ceil_mode=True)
        lines = self.up(self.line(planes.flatten(2)))
        return pool.avg_pool1d(pool.max_pool1d(lines, 3, 1, padding=1), 2).flatten(1)


def pooled(_: object) -> TorchNetwork:
    return TorchNetwork(
        Pooled(),
        inputs={"x": torch.randn(3, 2, 24, 24)},
        targets={"wanted": torch.randn(3, 28)},
        loss=nn.functional.mse_loss,
    )


def test_a_training_step_with_every_pool_has_the_numbers_of_torch(tmp_path: Path) -> None:
    recipe = Recipe("pooled", "all pools", pooled, settings=None, small=None, source="here", trains=True)
    comparison = build_onnx(recipe, None, training=True, path=tmp_path / "pooled.onnx").comparison
    weights, buffers = 9, 3
    assert comparison.outputs == 1 + 2 * weights + buffers
    assert comparison.relative_error < 1e-5


@pytest.mark.parametrize("padding", [None, 1])
def test_an_embedding_sums_over_repeated_places_and_leaves_padding_out(padding: int | None) -> None:
    table = nn.Embedding(3, 4, padding_idx=padding)
    indices, gradient = torch.tensor([[0, 1, 1], [2, 2, 2]]), torch.randn(2, 3, 4)
    table(indices).backward(gradient)
    decompose = training_decompositions()[aten.embedding_dense_backward.default]
    found = decompose(gradient, indices, 3, -1 if padding is None else padding, False)
    assert torch.allclose(found, table.weight.grad)


def test_a_training_step_adds_up_the_rows_of_a_table_alike_on_any_number_of_threads(tmp_path: Path) -> None:
    model = onnx.load(built("bert_base", tmp_path, training=True).path, load_external_data=False)
    ops = {(node.op_type, _reduction(node)) for node in model.graph.node}
    assert ("ScatterElements", b"add") in ops
    assert ("ScatterND", b"add") not in ops  # ONNX Runtime loses sums over repeated indices there


def _reduction(node: onnx.NodeProto) -> bytes:
    return next((attribute.s for attribute in node.attribute if attribute.name == "reduction"), b"")

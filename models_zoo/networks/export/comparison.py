"""The numbers of an ONNX model in ONNX Runtime beside those of torch: a model that was not compared is not written."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from gnnplace.errors import UnsupportedModel
from models_zoo.networks.export.optimizers import LEARNING_RATE, moments_of, zero_moments
from models_zoo.networks.export.training_step import LOSS, NEW
from models_zoo.networks.recipe import OnnxNetwork, TorchNetwork

RELATIVE = 1e-4
NOISE_FACTOR = 2.0
MOST = 0.5
"""Beyond this, numbers say nothing, however noisy torch is."""
DRAWS = 8
"""Noise is the worst of this many random networks and batches: whether an activation flips is a matter of luck."""

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Case:
    """Inputs, and the outputs that torch gives for them."""

    inputs: Arrays
    expected: Arrays
    rounding: Mapping[str, float] = field(default_factory=dict)
    """Outputs that are zero but for rounding, which has no digits to compare, and how large each may be."""
    unordered: Callable[[Sequence[NDArray[Any]]], list[NDArray[Any]]] | None = None
    """See `OnnxNetwork.unordered`; what is expected has gone through it already."""


@dataclass(frozen=True)
class Comparison:
    """The difference between a model and torch."""

    outputs: int
    """Number of compared outputs."""
    worst: str
    """The output that differs most."""
    relative_error: float
    """Largest difference of that output, as a fraction of its largest expected value."""
    torch_noise: float | None = None
    """The same between torch in float32 and in float64, if it was needed."""


def inference_case(network: TorchNetwork | OnnxNetwork) -> Case:
    """The forward pass in evaluation mode."""
    if isinstance(network, OnnxNetwork):
        names = [str(value.name) for value in network.model.graph.outputs]
        expected = network.reference(network.inputs)
        if network.unordered is not None:
            expected = network.unordered(expected)
        return Case(network.inputs, dict(zip(names, expected, strict=True)), unordered=network.unordered)
    with torch.no_grad():
        found = network.module.eval()(**network.inputs)
    values = found if isinstance(found, tuple) else (found,)
    return Case(
        {name: value.numpy() for name, value in network.inputs.items()},
        {name: value.numpy() for name, value in zip(network.outputs, values, strict=True)},
    )


def training_case(network: TorchNetwork) -> Case:
    """One step by torch's own autograd and optimiser, which changes the network's parameters.

    Expected are the loss, the new buffers and, for the gradients, the optimiser's new moments. New parameters are
    expected of SGD; Adam's first step divides gradients by their own size and makes noise of those near zero. A gradient
    below float32's epsilon of the largest is zero: such is that of a key's bias, which softmax does not see.
    """
    assert network.loss is not None
    module = network.module.train()
    named = dict(module.named_parameters())
    parameters = {name: value.detach().numpy().copy() for name, value in named.items()}
    buffers = {name: value.numpy().copy() for name, value in module.named_buffers()}
    batch = {name: value.numpy() for name, value in {**network.inputs, **network.targets}.items()}
    inputs = {**batch, **parameters, **buffers, **zero_moments(parameters, network.optimizer)}
    rate = LEARNING_RATE[network.optimizer]
    update = (
        torch.optim.SGD(named.values(), rate, momentum=0.9)
        if network.optimizer == "sgd"
        else torch.optim.Adam(named.values(), rate)
    )
    with sdpa_kernel(SDPBackend.MATH):
        loss = network.loss(module(**network.inputs), *network.targets.values())
        loss.backward()  # type: ignore[no-untyped-call]
    update.step()
    keys = {"momentum": "momentum_buffer", "first": "exp_avg", "second": "exp_avg_sq"}
    expected = {LOSS: loss.detach().numpy()}
    gradients = {name: float(value.grad.abs().max()) for name, value in named.items() if value.grad is not None}
    epsilon = float(np.finfo(np.float32).eps) * max(gradients.values(), default=0.0)
    rounding = {
        f"{name}.{moment}{NEW}": epsilon**2 if moment == "second" else epsilon
        for name, gradient in gradients.items()
        for moment in moments_of(network.optimizer)
        if gradient <= epsilon
    }
    if network.optimizer == "sgd":  # a parameter that starts at zero is then nothing but that rounding
        rounding |= {
            name + NEW: rate * epsilon
            for name, gradient in gradients.items()
            if gradient <= epsilon and not parameters[name].any()
        }
    for name, parameter in named.items():
        for moment in moments_of(network.optimizer) if parameter in update.state else ():
            expected[f"{name}.{moment}{NEW}"] = update.state[parameter][keys[moment]].numpy()
        if network.optimizer == "sgd":
            expected[name + NEW] = parameter.detach().numpy()
    for name, value in module.named_buffers():
        expected[name + NEW] = value.numpy()
    return Case(inputs, expected, rounding)


def exact(network: TorchNetwork) -> TorchNetwork:
    """The network in float64, its module in place."""
    return dataclasses.replace(
        network,
        module=network.module.double(),
        inputs={name: _double(value) for name, value in network.inputs.items()},
        targets={name: _double(value) for name, value in network.targets.items()},
    )


def torch_noise(case: Case, in_float64: Case) -> float:
    """The largest difference between torch in float32 and in float64 over all outputs.

    Gradients depend on which of millions of activations lie just above zero, and batch statistics hand the rounding of
    one layer, magnified, to the next. No float32 export can agree better than float32 agrees with exact numbers.
    """
    return max(
        relative_error(case.expected[name], value)
        for name, value in in_float64.expected.items()
        if name not in case.rounding and name in case.expected
    )


def _double(value: Tensor) -> Tensor:
    return value.double() if value.is_floating_point() else value


def compare(model: Path, case: Case, where: str, noise: Callable[[int], float] | None = None) -> Comparison:
    """Runs a model file and compares every output that the case expects and the model has.

    Where an output differs by more than `RELATIVE`, `noise` measures how far torch differs from itself, for up to
    `DRAWS` draws of weights and batch. The model may then differ by `NOISE_FACTOR` times the worst, but never by more
    than `MOST`.

    Raises:
        UnsupportedModel: an output differs by more, or no output could be compared.
    """
    shared, found = _run(model, case, where)
    if case.unordered is not None:
        found = case.unordered(found)
    errors = {
        name: _beyond(value, case.rounding[name])
        if name in case.rounding
        else relative_error(value, case.expected[name])
        for name, value in zip(shared, found, strict=True)
    }
    num_outputs = len(found)
    del found  # large, and noise needs the memory
    worst = max(errors, key=errors.__getitem__)
    limit, measured = RELATIVE, None
    for draw in range(DRAWS if noise is not None else 0):
        if errors[worst] <= limit:
            break
        measured = max(measured or 0.0, noise(draw))  # type: ignore[misc] # it is there
        limit = max(limit, min(MOST, NOISE_FACTOR * measured))
    if not errors[worst] <= limit:
        raise UnsupportedModel(
            f"{where}: output {worst!r} differs from torch by {errors[worst]:.1e} of its size (at most {limit:.0e}); "
            "the export computes something else and was not kept"
        )
    return Comparison(num_outputs, worst, errors[worst], measured)


def _run(model: Path, case: Case, where: str) -> tuple[list[str], list[NDArray[Any]]]:
    """Names and values of the outputs that the case expects and the model has."""
    options = ort.SessionOptions()
    options.enable_cpu_mem_arena = False  # it grows by doubling, and a training step is run once
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feed = {value.name: case.inputs[value.name] for value in session.get_inputs()}
    names = [value.name for value in session.get_outputs()]
    missing = [name for name in (LOSS,) if name in case.expected and name not in names]
    shared = [name for name in names if name in case.expected]
    if missing or not shared:
        raise UnsupportedModel(f"{where}: the model has none of the outputs {', '.join(missing or case.expected)}")
    return shared, session.run(shared, feed)


def relative_error(found: NDArray[Any], expected: NDArray[Any]) -> float:
    """Largest difference as a fraction of the largest expected value; infinite for different shapes or NaN."""
    found, expected = np.asarray(found), np.asarray(expected)
    if found.shape != expected.shape:
        return float("inf")
    if not found.size:
        return 0.0
    if not _all_finite((found, expected)):
        return float("inf")
    difference = np.abs(found.astype(np.float64) - expected.astype(np.float64)).max()
    return float(difference / (np.abs(expected.astype(np.float64)).max() or 1.0))


def _beyond(found: NDArray[Any], limit: float) -> float:
    """Zero if no value is larger than the limit."""
    return 0.0 if bool((np.abs(found.astype(np.float64)) <= limit).all()) else float("inf")


def _all_finite(arrays: Iterable[NDArray[Any]]) -> bool:
    return all(bool(np.isfinite(array).all()) for array in arrays)

"""A recipe's files: an ONNX model that was checked and compared with torch, its weights, and inputs to try it with."""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from gnnplace.errors import UnsupportedModel
from gnnplace.files import scratch_folder
from gnnplace.graph.op_graph import OpGraph
from gnnplace.onnx_io.model import STATE_KEY
from models_zoo.networks.export.comparison import (
    Case,
    Comparison,
    compare,
    exact,
    inference_case,
    torch_noise,
    training_case,
)
from models_zoo.networks.export.inference import inference_model
from models_zoo.networks.export.stages import mark_stages
from models_zoo.networks.export.training_step import training_model
from models_zoo.networks.recipe import OnnxNetwork, Recipe, TorchNetwork
from models_zoo.networks.shipped import companions

IR_VERSION = 10
_DRAWS = 3
"""Draws of weights and batch with which a training step is compared until it agrees."""
_INLINE_BYTES = 1024
"""Weights up to this size stay in the model file, where shape inference finds them."""


@dataclass(frozen=True)
class Built:
    """A model that was written."""

    path: Path
    case: Case
    comparison: Comparison
    parameters: int
    """Numbers that training changes, or that are stored as weights."""
    content_sha256: str
    """Hash of the model and its weights, independent of file names."""


def build_onnx(recipe: Recipe, settings: object, training: bool, path: Path, seed: int = 0) -> Built:
    """Writes `path`, its weights beside it in `NAME.data`, and a batch of inputs in `NAME.inputs.npz`.

    Raises:
        UnsupportedModel: the recipe gives no ONNX or no training step, the export failed, or it computes something
            else than torch; then nothing is left behind.
    """
    network = recipe.build(settings, seed)
    if isinstance(network, OpGraph):
        raise UnsupportedModel(f"zoo:{recipe.name}: is generated as an op graph and has no ONNX; place it as it is")
    if training and not recipe.trains:
        raise UnsupportedModel(f"zoo:{recipe.name}: has no training step; leave --training out")
    with scratch_folder(path) as folder:
        scratch = folder / path.name
        weights, inputs = companions(scratch)
        model = _model(network, training)
        parameters = _parameters(network, model)
        mark_stages(model, recipe.stages)
        model.producer_name, model.producer_version, model.graph.name = "gnnplace models_zoo", "", recipe.name
        model.ir_version = min(model.ir_version, IR_VERSION)
        ir.save(model, scratch, external_data=weights.name, size_threshold_bytes=_INLINE_BYTES)
        del model
        onnx.checker.check_model(scratch, full_check=True)
        case = training_case(network) if training and isinstance(network, TorchNetwork) else inference_case(network)
        where, case_of = f"zoo:{recipe.name}", partial(_case, recipe, settings, training)
        tries = 0 if isinstance(network, OnnxNetwork) else _DRAWS if training else 1
        del network  # large, and the comparison needs the memory
        comparison = _compared(scratch, case, where, case_of, seed, tries) if tries else compare(scratch, case, where)
        np.savez(inputs, **dict(case.inputs))  # type: ignore[arg-type] # one of its arguments is a flag
        content = _sha256(scratch, weights)
        # The model goes first and comes last: where it is, the rest is too.
        path.unlink(missing_ok=True)
        for source, target in zip((weights, inputs, scratch), (*companions(path), path), strict=True):
            target.unlink(missing_ok=True)
            if source.exists():
                source.replace(target)
    return Built(path, case, comparison, parameters, content)


def _case(recipe: Recipe, settings: object, training: bool, seed: int, in_float64: bool = False) -> Case:
    """Weights and batch of a seed, and what torch makes of them."""
    network = recipe.build(settings, seed)
    assert isinstance(network, TorchNetwork)
    return (training_case if training else inference_case)(exact(network) if in_float64 else network)


def _compared(model: Path, case: Case, where: str, case_of: Callable[..., Case], seed: int, tries: int) -> Comparison:
    """The comparison with the first of `tries` draws of weights and batch on which the model agrees with torch.

    One activation that rounds to the other side of zero changes a gradient by far more than rounding, and that is bad luck
    of a draw; a wrong export is wrong on all of them. Only a training step, whose weights are inputs, has more than one.
    """
    for draw in range(tries - 1):
        with suppress(UnsupportedModel):
            return _compared_once(model, case if draw == 0 else case_of(seed + draw), where, case_of, seed + draw)
    last = tries - 1
    return _compared_once(model, case_of(seed + last) if last else case, where, case_of, seed + last)


def _compared_once(model: Path, case: Case, where: str, case_of: Callable[..., Case], seed: int) -> Comparison:
    def noise(draw: int) -> float:
        return torch_noise(case_of(seed + draw) if draw else case, case_of(seed + draw, in_float64=True))

    return compare(model, case, where, noise)


def _parameters(network: TorchNetwork | OnnxNetwork, model: ir.Model) -> int:
    if isinstance(network, TorchNetwork):
        return sum(parameter.numel() for parameter in network.module.parameters())
    weights = [value.const_value for value in model.graph.initializers.values()]
    return sum(weight.size for weight in weights if weight is not None and weight.dtype.is_floating_point())


def _model(network: TorchNetwork | OnnxNetwork, training: bool) -> ir.Model:
    if isinstance(network, OnnxNetwork):
        return network.model
    if training:
        return training_model(network)
    model = inference_model(network)
    if network.state:
        model.metadata_props[STATE_KEY] = json.dumps(dict(network.state))
    return model


def _sha256(model: Path, weights: Path) -> str:
    """Hash of the model without the name of its weights file, and of the weights."""
    proto = onnx.load(model, load_external_data=False)
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = ""
    digest = hashlib.sha256(proto.SerializeToString(deterministic=True))
    if weights.exists():
        with weights.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()

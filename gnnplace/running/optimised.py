"""A model as ONNX Runtime optimises it for this machine's CPU: the kernels that a session of the whole model runs."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import onnxruntime as ort

from gnnplace.devices.detect import cpu_model, vector_instructions
from gnnplace.devices.real_names import parse_real
from gnnplace.errors import GnnplaceError, UnsupportedModel
from gnnplace.files import temporary_folder
from gnnplace.onnx_io.external_data import light_copy
from gnnplace.onnx_io.kernels import KernelModel
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.read import read_onnx
from gnnplace.onnx_io.split import ModelCutter
from gnnplace.running.devices import create_session, session_options
from gnnplace.running.part_session import infer_types
from gnnplace.running.worker import one_line

OPTIMISED = "optimised.onnx"
"""File name of an optimised model."""
_WEIGHTS = "optimised.bin"
_DEVICE = parse_real("cpu:0")  # the optimised model does not depend on the core, nor on the number of threads


def this_machine() -> dict[str, str]:
    """What an optimised model depends on: the CPU, its widest vector instructions, and ONNX Runtime."""
    return {"cpu": cpu_model(), "instructions": vector_instructions(), "onnxruntime": ort.__version__}


def writes_optimised(options: ort.SessionOptions, folder: Path) -> None:
    """Makes a session with these options write its optimised model, the file `OPTIMISED`, into `folder`."""
    options.optimized_model_filepath = str(folder / OPTIMISED)
    # Weights beside the model, so that they neither hit the size limit of a file nor have to be parsed.
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", _WEIGHTS)
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")


def optimised(model: OnnxModel) -> KernelModel | None:
    """The kernels that ONNX Runtime makes of a model for this CPU, in files that vanish with the object.

    None where it cannot load the model, or where its kernels cannot be cut apart.
    """
    with ExitStack() as opened:
        folder = opened.enter_context(temporary_folder())
        try:
            found = _optimised(model, folder)
        except GnnplaceError:
            return None
        weakref.finalize(found, opened.pop_all().close)
        return found


def _optimised(model: OnnxModel, folder: Path) -> KernelModel:
    light, data_folder = light_copy(model, folder)
    part = ModelCutter(light).part_in_memory(range(model.graph.num_ops))
    options = session_options(_DEVICE)
    writes_optimised(options, folder)
    try:
        create_session(part.model, _DEVICE, data_folder, options, model.custom_ops)
    except Exception as error:  # ONNX Runtime's errors have no base class of their own
        raise UnsupportedModel(f"{model.path}: ONNX Runtime cannot load it: {one_line(error)}") from error
    read = read_onnx(folder / OPTIMISED, model.dims, model.custom_ops, infer_types)
    return KernelModel.of(model, replace(read, sha256=model.sha256), this_machine())


def suits_this_machine(made_for: Mapping[str, str]) -> bool:
    """True for parts that run on any machine, and for those that were optimised for one like this."""
    return not made_for or dict(made_for) == this_machine()

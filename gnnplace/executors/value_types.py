"""Types that ONNX cannot tell, asked of ONNX Runtime, which knows its own operators and those of custom-op libraries."""

from __future__ import annotations

from collections.abc import Mapping

import onnxruntime as ort

from gnnplace.executors.devices import register_custom_ops
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.read import at_dims
from gnnplace.onnx_io.untyped import state_types, with_untyped_outputs

__all__ = ["with_known_types"]

_FATAL_ONLY = 4  # ONNX Runtime's log level: what it refuses here, it refuses again where that is reported


def with_known_types(model: OnnxModel, dims: Mapping[str, int] | None = None) -> OnnxModel:
    """The model with the types of all values, without which the model cannot be cut at them; costs at `dims` follow from them.

    It stays as it is where no type is missing, or where ONNX Runtime cannot load it either.
    """
    asking = with_untyped_outputs(model)
    if asking is None:
        return model
    options = ort.SessionOptions()
    options.log_severity_level = _FATAL_ONLY
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", str(model.path.resolve().parent)
    )
    try:
        register_custom_ops(options, model.custom_ops)
        session = ort.InferenceSession(asking, options, providers=["CPUExecutionProvider"])
    except Exception:  # ONNX Runtime's errors have no base class of their own
        return model
    state_types(model, {arg.name: (arg.type, arg.shape) for arg in session.get_outputs()})
    return at_dims(model, dims or {})

"""The order in which a session of ONNX Runtime runs its kernels, from its profile."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnxruntime as ort


def kernels_run(
    model: Path | bytes, feed: Mapping[str, np.ndarray], level: ort.GraphOptimizationLevel, folder: Path
) -> list[str]:
    """Names of the kernels in the order in which they ran; the profile is written to `folder`."""
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(folder / "profile")
    options.graph_optimization_level = level
    session = ort.InferenceSession(
        model if isinstance(model, bytes) else str(model), options, providers=["CPUExecutionProvider"]
    )
    session.run(None, dict(feed))
    names = [event["name"] for event in json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))]
    return [name.removesuffix("_kernel_time") for name in names if name.endswith("_kernel_time")]

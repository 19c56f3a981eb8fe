"""A model of any kind - ONNX file, op-graph file, zoo name, object - as an op graph with its origin."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gnnplace.errors import UnsupportedModel
from gnnplace.files import cache_folder
from gnnplace.graph.json_format import read_graph
from gnnplace.graph.op_graph import OpGraph
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.read import read_onnx

__all__ = ["ModelSource", "Workload", "load_workload"]

ModelSource = str | Path | OpGraph | OnnxModel
_ZOO = "zoo:"


@dataclass(frozen=True, eq=False)
class Workload:
    """What is to be placed."""

    graph: OpGraph
    onnx: OnnxModel | None = None
    """None for op graphs: they can be placed, not run."""
    sha256: str | None = None
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of the graph."""
        return self.graph.name


def load_workload(model: ModelSource, dims: Mapping[str, int] | None = None) -> Workload:
    """The workload that `model` names: an `.onnx` file, an op-graph `.json`, `zoo:NAME`, or an object that was read.

    Args:
        model: see above.
        dims: values of symbolic dimensions.

    Raises:
        UnsupportedModel: the file is missing or is no model.
        InvalidGraph: the op-graph file breaks a rule.
    """
    if isinstance(model, OpGraph):
        return Workload(model)
    if isinstance(model, OnnxModel):
        return Workload(model.graph, model, model.sha256, model.warnings)
    if str(model).startswith(_ZOO):
        return load_workload(_zoo_file(str(model).removeprefix(_ZOO)), dims)
    path = Path(model)
    if path.suffix == ".json":
        if dims:
            raise UnsupportedModel(f"{path}: an op graph has no symbolic dimensions; leave --dim out")
        graph = read_graph(path)
        return Workload(graph, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    read = read_onnx(path, dims)
    return Workload(read.graph, read, read.sha256, read.warnings)


def _zoo_file(name: str) -> Path:
    """The built model of a zoo name, from the cache or built now."""
    from models_zoo.networks.light import LIGHT_MODELS, write_light_model

    names = {f"light_{light}": light for light in LIGHT_MODELS}
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {_ZOO}{near[0]}?" if near else f"known are {', '.join(names)}"
        raise UnsupportedModel(f"{_ZOO}{name}: there is no such zoo model; {hint}")
    path = cache_folder() / "zoo" / f"{name}.onnx"
    if not path.exists():
        write_light_model(names[name], path)
    return path

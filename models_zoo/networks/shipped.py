"""The manifest and the op graphs of all recipes, which ship with the package."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnplace.errors import UnsupportedModel
from gnnplace.files import write_text

if TYPE_CHECKING:
    from gnnplace.graph.op_graph import OpGraph

LIGHT_MODELS = (
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50",
    "shufflenet", "squeezenet", "vgg19", "zfnet512",
)  # fmt: skip
"""Networks that the `onnx` package ships; `zoo:light_NAME` names them."""

_FORMAT = "gnnplace.zoo/1"
_HERE = Path(__file__).parent
_MANIFEST = _HERE / "manifest.json"
_STRUCTURES = _HERE / "structures"


@dataclass(frozen=True)
class ManifestRow:
    """One recipe at its published size, inference or training."""

    name: str
    training: bool
    family: str
    split: str
    summary: str
    source: str
    settings: dict[str, Any]
    ops: int
    edges: int
    parameters: int
    parameter_bytes: int
    flops: float
    """FLOPs of one step."""
    opset: int | None
    """None for generated graphs, which are no ONNX."""
    content_sha256: str
    """Hash of the ONNX file and its weights, or of the op graph without ONNX."""
    torch_outputs: int | None
    """Number of outputs compared with torch; None for generated graphs."""
    torch_error: float | None
    """The largest difference, as a fraction of the largest value of its output."""
    torch_noise: float | None
    """The same between torch in float32 and in float64, where the difference is more than 1e-4 because of it."""

    @property
    def key(self) -> str:
        """The name of the row on disk and after `zoo:`."""
        return f"{self.name}:training" if self.training else self.name


@cache
def manifest() -> Sequence[ManifestRow]:
    """The rows by family and name."""
    if not _MANIFEST.exists():
        return ()
    document = json.loads(_MANIFEST.read_text(encoding="utf-8"))
    return tuple(ManifestRow(**row) for row in document["recipes"])


def zoo_names() -> tuple[str, ...]:
    """Names after `zoo:` without variants; unpublished recipes are missing."""
    return (*dict.fromkeys(row.name for row in manifest()), *(f"light_{name}" for name in LIGHT_MODELS))


def write_manifest(rows: Sequence[ManifestRow], versions: dict[str, str]) -> None:
    """Replaces the manifest; `versions` are those of the libraries that built it."""
    recipes = [asdict(row) for row in rows]
    write_text(_MANIFEST, json.dumps({"format": _FORMAT, "versions": versions, "recipes": recipes}, indent=1) + "\n")
    manifest.cache_clear()


def read_structure(key: str) -> OpGraph:
    """The op graph of a manifest row.

    Raises:
        UnsupportedModel: it does not ship.
    """
    from gnnplace.graph.json_format import read_graph

    path = _structure(key)
    if not path.exists():
        raise UnsupportedModel(f"zoo:{key}: its op graph does not ship with this version; build it with gnnplace zoo")
    return read_graph(path)


def structure_types(key: str) -> frozenset[str]:
    """Op types of a shipped op graph, without the rest of it."""
    from gnnplace.graph.json_format import read_op_types

    return read_op_types(_structure(key))


def companions(model: Path) -> tuple[Path, Path]:
    """The files beside a built model: its weights, and a batch of inputs to try it with."""
    return model.with_name(model.name + ".data"), model.with_name(model.name + ".inputs.npz")


def has_structure(key: str) -> bool:
    """The op graph of this row ships."""
    return _structure(key).exists()


def write_structure(key: str, graph: OpGraph) -> None:
    """Writes an op graph where `read_structure` finds it; equal graphs give equal bytes."""
    from gnnplace.graph.json_format import write_graph

    write_graph(graph, _structure(key))


def _structure(key: str) -> Path:
    return _STRUCTURES / f"{key.replace(':', '.')}.json.gz"

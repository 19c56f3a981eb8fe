"""Names after `zoo:`: a recipe and its variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnplace.errors import UnsupportedModel, did_you_mean
from gnnplace.files import cache_folder, taking_turns
from gnnplace.graph.json_format import write_graph
from gnnplace.graph.op_graph import OpGraph
from gnnplace.onnx_io.read import read_onnx
from models_zoo.networks.light import write_light_model
from models_zoo.networks.shipped import LIGHT_MODELS, companions, has_structure, manifest, read_structure, zoo_names

if TYPE_CHECKING:
    from models_zoo.networks.recipe import Recipe

_LIGHT = "light_"
_TRAINING, _SMALL = "training", "small"


@dataclass(frozen=True)
class ZooName:
    """A recipe with the options of its name."""

    name: str
    training: bool = False
    small: bool = False
    changes: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The text after `zoo:`, in its one form."""
        return ":".join(
            (
                self.name,
                *((_TRAINING,) if self.training else ()),
                *((_SMALL,) if self.small else ()),
                *(f"{key}={value}" for key, value in sorted(self.changes.items())),
            )
        )

    def structure(self) -> OpGraph | None:
        """The op graph that ships for it, or that is generated as such; None where only an export gives one.

        Raises:
            UnsupportedModel: there is no such recipe.
            MissingDependency: a library that builds networks is not installed.
        """
        if self.name.startswith(_LIGHT):
            return None
        if not self.small and not self.changes and has_structure(self.key):
            return read_structure(self.key)
        made = self._recipe.build(self._settings) if self._is_generated else None
        return made if isinstance(made, OpGraph) else None

    def onnx_file(self) -> Path:
        """The ONNX model, from the cache or built now: exported, checked, compared with torch.

        Raises:
            UnsupportedModel: there is no such recipe, or it cannot be built.
            MissingDependency: a library that builds networks is not installed.
        """
        path = cache_folder() / "zoo" / f"{self.key.replace(':', '.')}.onnx"
        if not path.exists():
            with taking_turns(path):
                if not path.exists():  # nobody else has built it meanwhile
                    self._write_onnx(path, 0)
        return path

    def write(self, path: Path, seed: int = 0) -> list[Path]:
        """Writes the ONNX model, or the op graph where the name ends in `.json` or `.json.gz`; the files it wrote.

        Raises:
            UnsupportedModel: there is no such recipe, or it cannot be built.
            MissingDependency: a library that builds networks is not installed.
        """
        if path.suffix == ".onnx":
            self._write_onnx(path, seed)
            return [file for file in (path, *companions(path)) if file.exists()]
        graph = self.structure()
        write_graph(read_onnx(self.onnx_file()).graph if graph is None else graph, path)
        return [path]

    def description(self) -> dict[str, Any]:
        """Summary, published settings and sizes of the recipe; raises as `structure` does."""
        rows = {row.key: row for row in manifest()}
        if self.key in rows:
            return asdict(rows[self.key])
        recipe = self._recipe
        return {
            "name": self.name, "training": self.training, "summary": recipe.summary, "source": recipe.source,
            "settings": asdict(self._settings),
        }  # fmt: skip

    def _write_onnx(self, path: Path, seed: int) -> None:
        if self.name.startswith(_LIGHT):
            self._write_light(path, seed)
            return
        from models_zoo.networks.catalog import missing_library

        try:
            from models_zoo.networks.build import build_onnx

            build_onnx(self._recipe, self._settings, self.training, path, seed)
        except ModuleNotFoundError as missing:  # also torch's own, which imports what it needs when it needs it
            raise missing_library(missing) from None

    @property
    def _recipe(self) -> Recipe:
        from models_zoo.networks.catalog import load_recipe

        return load_recipe(self.name)

    @property
    def _settings(self) -> Any:
        return self._recipe.at("small" if self.small else "full", self.changes)

    @property
    def _is_generated(self) -> bool:
        from models_zoo.networks.catalog import GENERATED, family_of

        return family_of(self.name) in GENERATED

    def _write_light(self, path: Path, seed: int) -> None:
        name = self.name.removeprefix(_LIGHT)
        if name not in LIGHT_MODELS:
            hint = did_you_mean(self.name, zoo_names(), f"known are {', '.join(LIGHT_MODELS)}")
            raise UnsupportedModel(f"zoo:{self.name}: there is no such zoo model; {hint}")
        if self.training or self.small or self.changes:
            raise UnsupportedModel(f"zoo:{self.key}: {self.name} has one variant; name it alone")
        write_light_model(name, path, seed)


def parse_zoo_name(text: str) -> ZooName:
    """The meaning of `NAME[:training][:small][:SETTING=VALUE ...]`.

    >>> parse_zoo_name("rnnlm_2:training:steps=10")
    ZooName(name='rnnlm_2', training=True, small=False, changes={'steps': '10'})

    Raises:
        UnsupportedModel: a part of another form.
    """
    name, *parts = text.split(":")
    flags = {part for part in parts if part in (_TRAINING, _SMALL)}
    settings = [part for part in parts if part not in flags]
    return zoo_name(name, training=_TRAINING in flags, small=_SMALL in flags, settings=settings)


def zoo_name(name: str, *, training: bool = False, small: bool = False, settings: Sequence[str] = ()) -> ZooName:
    """A zoo name from its parts; settings are texts `SETTING=VALUE`, and `name` may hold parts of its own.

    Raises:
        UnsupportedModel: a setting of another form.
    """
    if ":" in name:
        inner = parse_zoo_name(name.removeprefix("zoo:"))
        outer = zoo_name("", settings=settings).changes
        return ZooName(inner.name, inner.training or training, inner.small or small, {**inner.changes, **outer})
    changes = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not (equals and key and value):
            raise UnsupportedModel(
                f"zoo:{name}: {setting!r} is not understood; expected NAME[:training][:small][:SETTING=VALUE]"
            )
        changes[key] = value
    return ZooName(name, training, small, changes)

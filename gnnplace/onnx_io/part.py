"""One part of a placed model, and what a model takes and gives; without the libraries that read models."""

from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Part:
    """One part of a placed model: a model of its own, its device, and the values that it exchanges."""

    name: str
    """The file's name in a folder of parts; otherwise a name for messages."""
    device: str
    """Empty until the part is placed."""
    model: Path | bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    optional_inputs: tuple[str, ...] = ()
    """Model inputs with a default, which the part contains."""
    key: Hashable = None
    """Identifies the content, so that a cache can reuse the part's session on a device; None: not cached."""
    data_folder: Path | None = None
    """Folder of the external weights of a model in memory."""
    custom_ops: tuple[Path, ...] = ()
    """Shared libraries with operators that ONNX Runtime does not have."""
    optimised: bool = False
    """It consists of kernels that ONNX Runtime chose for this machine; a session runs them as they are."""

    @property
    def reads(self) -> tuple[str, ...]:
        """All inputs, with and without a default."""
        return (*self.inputs, *self.optional_inputs)


@dataclass(frozen=True)
class ValueInfo:
    """A model input or output, as `onnxruntime.NodeArg` describes it."""

    name: str
    type: str
    """Type as ONNX Runtime writes it, such as `tensor(float)`."""
    shape: tuple[int | str | None, ...]
    """Sizes; a symbolic size by name, an unknown one as None."""
    optional: bool = False
    """Whether the input has a default."""
    known_rank: bool = True

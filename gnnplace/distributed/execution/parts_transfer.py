"""The parts of a placed model on their way to a host: files in pieces in Ray's object store, each host's own and no others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gnnplace.distributed.placing.remote_call import sent_file, written_files
from gnnplace.executors.dataflow import RunnerPart, Step
from gnnplace.onnx_io.external_data import external_beside

__all__ = ["HostParts", "packed_parts", "unpacked_parts"]


@dataclass(frozen=True)
class HostParts:
    """What one host runs."""

    steps: Mapping[str, Sequence[Step]]
    """Of each device; models and libraries are names in `files`."""
    files: Mapping[str, tuple[Any, ...]]
    """The pieces of each file, as references to Ray's object store."""


def packed_parts(steps: Mapping[str, Sequence[Step]]) -> HostParts:
    """Puts the models of all steps, the weights in files beside them, and libraries of operators into the object store."""
    contents: dict[str, Path | bytes] = {}

    def packed(step: Step) -> Step:
        part, name = step.part, f"part-{step.number:04d}.onnx"
        contents[name] = part.model
        if isinstance(part.model, Path):
            contents.update(external_beside(part.model))
        libraries = {f"{number}-{path.name}": path for number, path in enumerate(part.custom_ops)}
        contents.update(libraries)
        return replace(step, part=replace(part, model=Path(name), custom_ops=tuple(map(Path, libraries))))

    packed_steps = {device: [packed(step) for step in own] for device, own in steps.items()}
    files = {name: sent_file(content) for name, content in contents.items()}
    return HostParts(packed_steps, files)


def unpacked_parts(parts: HostParts, folder: Path) -> Mapping[str, Sequence[Step]]:
    """Writes the files into `folder`; the steps with their paths there."""
    written_files(parts.files, folder)

    def unpacked(part: RunnerPart) -> RunnerPart:
        assert isinstance(part.model, Path)
        return replace(part, model=folder / part.model, custom_ops=tuple(folder / path for path in part.custom_ops))

    return {device: [replace(step, part=unpacked(step.part)) for step in own] for device, own in parts.steps.items()}

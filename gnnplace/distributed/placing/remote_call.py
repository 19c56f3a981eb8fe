"""A function that is run on a host, with files that it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from gnnplace.distributed.cluster import Node, host_options
from gnnplace.distributed.priority import take_usual_priority
from gnnplace.errors import GnnplaceError, ProcessLost

__all__ = ["called_on_all", "sent_file", "written_files"]

T = TypeVar("T")

_PIECE_BYTES = 1 << 24  # a store may be small; what does not fit Ray keeps on disk


def called_on_all(tasks: Sequence[tuple[Node, Callable[..., T], Sequence[tuple[Any, ...]]]]) -> list[list[T]]:
    """What a function of a module gives on each host, for each tuple of arguments, one after the other in one process.

    Raises:
        GnnplaceError: as the function.
        ProcessLost: the process ended, or the host did.
    """
    import ray

    run: Any = ray.remote(_run)
    asked = [
        run.options(**host_options(node.node_id), num_cpus=0, max_retries=1).remote(function, calls)
        for node, function, calls in tasks
    ]
    found = []
    for (node, _, _), reference in zip(tasks, asked, strict=True):
        try:
            answer: list[T] | GnnplaceError = ray.get(reference)
        except ray.exceptions.RayError as error:
            reason = str(error).strip().rpartition("\n")[2].strip()
            raise ProcessLost(f"host {node.name!r} did not do its part ({reason})") from None
        if isinstance(answer, GnnplaceError):
            raise type(answer)(f"host {node.name!r}: {answer}")
        found.append(answer)
    return found


def _run(function: Callable[..., T], calls: Sequence[tuple[Any, ...]]) -> list[T] | GnnplaceError:
    """On the host; what went wrong is given back, as Ray would wrap it."""
    take_usual_priority()
    try:
        return [function(*arguments) for arguments in calls]
    except GnnplaceError as error:
        return error


def sent_file(content: Path | bytes) -> tuple[Any, ...]:
    """References to the pieces of a file in the object store, from where each host that asks gets them once."""
    import ray

    if isinstance(content, bytes):
        return (ray.put(content),)
    with content.open("rb") as file:
        return tuple(map(ray.put, iter(lambda: file.read(_PIECE_BYTES), b"")))


def written_files(files: Mapping[str, Sequence[Any]], folder: Path) -> None:
    """Writes what was sent into a folder, by name."""
    import ray

    for name, pieces in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for piece in pieces:
                file.write(ray.get(piece))

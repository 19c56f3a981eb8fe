"""Function calls on hosts, and files that travel to them through Ray's object store."""

import io
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from gnnplace.devices.detect import cpu_model
from gnnplace.distributed.cluster import Node, host_options, last_line, take_usual_priority
from gnnplace.errors import GnnplaceError, ProcessLost

T = TypeVar("T")
SentFiles = Mapping[str, Sequence[Any]]
"""References to the pieces of each file in Ray's object store, by the file's name."""
_PIECE_BYTES = 1 << 24  # object stores may be small; Ray keeps the rest on disk


def called_on_all(calls: Sequence[tuple[Node, Callable[..., T], tuple[Any, ...]]]) -> list[T]:
    """The results of a module's function on each host, each with its own arguments.

    Raises:
        GnnplaceError: an error of the function.
        ProcessLost: the process or the host was lost.
    """
    import ray

    run: Any = ray.remote(_run)
    references = [
        run.options(**host_options(node.node_id), num_cpus=0, max_retries=1).remote(function, arguments)
        for node, function, arguments in calls
    ]
    found = []
    for (node, _, _), reference in zip(calls, references, strict=True):
        try:
            answer: T | GnnplaceError = ray.get(reference)
        except ray.exceptions.RayError as error:
            raise ProcessLost(f"host {node.name!r} did not do its part ({last_line(error)})") from None
        if isinstance(answer, GnnplaceError):
            raise type(answer)(f"host {node.name!r}: {answer}")
        found.append(answer)
    return found


def _run(function: Callable[..., T], arguments: tuple[Any, ...]) -> T | GnnplaceError:
    """Runs on a host; an error is returned instead of raised, as Ray would wrap it."""
    take_usual_priority()
    try:
        return function(*arguments)
    except GnnplaceError as error:
        return error


def case_result(run: Callable[[Any], Mapping[str, Any]], case: object) -> dict[str, Any]:
    """Runs on a host: the result of a bench case, with the name of the host's `cpu`."""
    return {**run(case), "cpu": cpu_model()}


def sent_files(contents: Mapping[str, Path | bytes]) -> SentFiles:
    """Puts files into Ray's object store, which sends them to each host at most once."""
    import ray

    files: dict[str, list[Any]] = {}
    for name, content in contents.items():
        with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as file:
            files[name] = [ray.put(piece) for piece in iter(partial(file.read, _PIECE_BYTES), b"")]
    return files


def write_sent_files(files: SentFiles, folder: Path) -> None:
    """Writes files from Ray's object store into a folder."""
    import ray

    for name, pieces in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.writelines(map(ray.get, pieces))

"""Reading and writing whole files: a file is complete or absent, never half."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gnnplace.errors import GnnplaceError

__all__ = ["cache_folder", "new_file", "read_json", "read_json_lines", "write_json_lines", "write_text"]


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes `text` to `path` at once."""
    with new_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_json(path: Path, error: type[GnnplaceError]) -> Any:
    """The parsed JSON of a file.

    Raises:
        error: the file is missing, is no text, or is no JSON; the message says where.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise error(f"{path}: cannot be read ({problem.strerror}); check the path") from None
    except UnicodeDecodeError:
        raise error(f"{path}: is no text file; expected JSON") from None
    except (json.JSONDecodeError, RecursionError) as problem:
        raise error(f"{path}: is no valid JSON ({problem}); the file may be cut off") from None


def read_json_lines(path: Path, error: type[GnnplaceError]) -> list[Any]:
    """The values of a file that grows by a JSON value a line; none where there is no file.

    A last line that a kill has cut off is left out, and stays in the file.

    Raises:
        error: another line is no JSON; the message says which.
    """
    if not path.exists():
        return []
    *whole, _ = path.read_bytes().split(b"\n")
    values = []
    for number, line in enumerate(whole, start=1):
        try:
            values.append(json.loads(line))
        except ValueError as problem:
            raise error(f"{path}: line {number} is no valid JSON ({problem}); delete it or the file") from None
    return values


def write_json_lines(path: Path, values: Iterable[Any]) -> None:
    """Writes a JSON value a line to `path` at once; more can be appended."""
    write_text(path, "".join(json.dumps(value) + "\n" for value in values))


def cache_folder() -> Path:
    """Where built models and measured costs are kept: `$GNNPLACE_CACHE`, else the user's cache folder."""
    stated = os.environ.get("GNNPLACE_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(stated) if stated else (Path(base) if base else Path.home() / ".cache") / "gnnplace"

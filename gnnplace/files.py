"""Reading and writing whole files: a file is complete or absent, never half."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gnnplace.errors import GnnplaceError

__all__ = [
    "cache_folder",
    "file_inside",
    "new_file",
    "parsed_json",
    "read_json",
    "read_json_lines",
    "write_json_lines",
    "write_text",
]

_HALF_A_SIGN = re.compile(r"\\u[dD][89a-fA-F]")


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
        text = path.read_bytes()
    except OSError as problem:
        raise error(f"{path}: cannot be read ({problem.strerror}); check the path") from None
    except ValueError as problem:  # what no file system has in a name
        raise error(f"{str(path)!r}: is no path ({problem})") from None
    return parsed_json(text, str(path), error)


def parsed_json(content: bytes, where: str, error: type[GnnplaceError]) -> Any:
    """The value of a JSON text in UTF-8, whose whole numbers fit in 64 bits and whose texts can be written again.

    Raises:
        error: it is something else; the message begins with `where`.
    """
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise error(f"{where}: is no text file; expected JSON") from None
    try:
        value = json.loads(text, parse_int=_whole_number)
        if _HALF_A_SIGN.search(text):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise error(f"{where}: a text holds half of a surrogate pair, which is no character; write it anew") from None
    except (ValueError, RecursionError) as problem:
        raise error(f"{where}: is no valid JSON ({problem}); the file may be cut off") from None
    return value


def _whole_number(digits: str) -> int:
    if len(digits) < 19:
        return int(digits)
    if len(digits) > 20 or not -(2**63) <= int(digits) < 2**63:
        raise ValueError(f"the number {digits[:20]}... does not fit in 64 bits")
    return int(digits)


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


def file_inside(folder: Path, name: str) -> Path | None:
    """The path that a name in a document means; None where it leads out of `folder`: absolute, with `..`, through a link."""
    try:
        path = folder / name
        inside = path.resolve().is_relative_to(folder.resolve())
        path.is_file()  # raises for names that no file can have
    except (OSError, ValueError, RuntimeError):  # what no path is, and links that go in a circle
        return None
    return path if inside and not Path(name).is_absolute() and ".." not in Path(name).parts else None


def cache_folder() -> Path:
    """Where built models and measured costs are kept: `$GNNPLACE_CACHE`, else the user's cache folder."""
    stated = os.environ.get("GNNPLACE_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(stated) if stated else (Path(base) if base else Path.home() / ".cache") / "gnnplace"

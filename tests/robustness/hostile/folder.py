"""One input: a few files by their names in a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

__all__ = ["Files", "packed", "read_files", "unpacked", "write_files"]

Files = Mapping[str, bytes]
"""Contents by path inside the folder."""


def write_files(files: Files, folder: Path) -> None:
    """Writes the files; folders in their names are made."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def read_files(folder: Path) -> Files:
    """The files in a folder, without what links lead to."""
    found = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def packed(files: Files) -> bytes:
    """All files in one text, for a fuzzer that knows only bytes.

    >>> unpacked(packed({"a/b": b"1", "c": b""})) == {"a/b": b"1", "c": b""}
    True
    """
    head = json.dumps({name: len(content) for name, content in files.items()}).encode()
    return head + b"\n" + b"".join(files.values())


def unpacked(data: bytes) -> Files:
    """What `packed` made; nothing where it was not made by it."""
    head, _, rest = data.partition(b"\n")
    try:
        sizes: dict[str, int] = json.loads(head)
        found = {}
        for name, size in sizes.items():
            found[name], rest = rest[:size], rest[size:]
    except (ValueError, AttributeError, TypeError):
        return {}
    return found

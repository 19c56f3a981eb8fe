"""Inputs as files by name, and a process with two gigabytes and one folder to work in."""

import json
import os
import resource
import shutil
from collections.abc import Mapping
from pathlib import Path

Files = Mapping[str, bytes]
"""Contents of files by their path inside a folder."""


def write_files(files: Files, folder: Path) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def read_files(folder: Path) -> Files:
    """The files in a folder, without the targets of links."""
    found = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def packed(files: Files) -> bytes:
    """All files as one byte string, for a fuzzer that knows only bytes."""
    texts = {name: content.decode("latin-1") for name, content in files.items()}
    return json.dumps(texts, ensure_ascii=False).encode()


def unpacked(data: bytes) -> Files:
    """The files that `packed` joined; none for other bytes."""
    try:
        return {name: text.encode("latin-1") for name, text in json.loads(data).items()}
    except (ValueError, AttributeError):
        return {}


MEMORY_BYTES = 2 * 2**30


def limit_memory() -> None:
    """Makes allocations beyond `MEMORY_BYTES` raise `MemoryError`, or end this process."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Room:
    """A folder with subfolders for input and output, and an empty one as working directory."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.input, self.out = folder, folder / "input", folder / "out"

    def enter(self) -> None:
        """Makes the empty folder the working directory, and moves cache, temporary folder and home into the room."""
        for name in ("work", "cache", "temporary", "home"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        os.environ |= {
            "GNNPLACE_CACHE": str(self.folder / "cache"),
            "TMPDIR": str(self.folder / "temporary"),
            "HOME": str(self.folder / "home"),
        }
        os.chdir(self.folder / "work")

    def furnish(self, files: Files) -> None:
        """Replaces the last input; `outside` is a link that leads out of its folder."""
        for folder in (self.input, self.out):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        write_files(files, self.input)
        (self.input / "outside").symlink_to("/etc")

    def stray(self, files: Files) -> str | None:
        """Name of a file outside the folders for output, or of a changed input; None without one.

        The home folder is not checked, as ONNX Runtime writes a file there.
        """
        nothing: Files = {}
        for folder, known in ((self.folder / "work", nothing), (self.input, files)):
            found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
            for name, path in found.items():
                if name not in known or path.read_bytes() != known[name]:
                    return str(path.relative_to(self.folder))
        names = {path.name for path in self.folder.iterdir()} - {"input", "out", "work", "cache", "temporary", "home"}
        beside = {f"../{path.name}" for path in self.folder.parent.iterdir()} - {f"../{self.folder.name}"}
        return min(names | beside, default=None)

"""A process that may do little: two gigabytes, one folder."""

from __future__ import annotations

import os
import resource
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.robustness.hostile.folder import Files, write_files

__all__ = ["MEMORY_BYTES", "Room", "limit_memory", "peak_bytes"]

MEMORY_BYTES = 2 * 2**30


def limit_memory() -> None:
    """Asking for more than `MEMORY_BYTES` raises `MemoryError` in this process, or ends it."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def peak_bytes() -> int:
    """The most that this process ever had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@dataclass(frozen=True)
class Room:
    """A folder with a place for the input, one for what is written, and an empty one to work in."""

    folder: Path

    @property
    def input(self) -> Path:
        """Where the files of an input lie."""
        return self.folder / "input"

    @property
    def out(self) -> Path:
        """Where something may be written."""
        return self.folder / "out"

    def enter(self) -> None:
        """Makes the empty folder the working directory, and everything that is written elsewhere by intent stays in the room."""
        for name in ("work", "cache", "temporary", "home"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        os.environ |= {
            "GNNPLACE_CACHE": str(self.folder / "cache"),
            "TMPDIR": str(self.folder / "temporary"),
            "HOME": str(self.folder / "home"),
        }
        os.chdir(self.folder / "work")

    def furnish(self, files: Files) -> None:
        """Puts an input in place of the last; `outside` is a link that leads out of its folder."""
        for folder in (self.input, self.out):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        write_files(files, self.input)
        (self.input / "outside").symlink_to("/etc")

    def stray(self, files: Files) -> str | None:
        """A file where none should be, or an input that was changed; None where all is well.

        Of the home folder nothing is asked: ONNX Runtime keeps a number of its own there.
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

"""Full and read-only disks, which are mounted where this user may mount."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, kib: int = 1024) -> Iterator[Path]:
    """A file system of `kib` KiB; skips the test where none may be mounted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount program")
    if done.returncode:
        pytest.skip("mounting a file system needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Leaves no room on the disk of a folder."""
    with (folder / "filler").open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(b"0" * size)
            except OSError:
                pass


def make_read_only(folder: Path) -> None:
    """Makes the disk of a folder read-only, also for root."""
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)

"""Main memory that this process may use: the machine's, within the limits of its control groups (versions 1 and 2)."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None


class _Files(NamedTuple):
    """Names of a control group's files."""

    limit: str
    used: str
    cache: str
    """Entry of `memory.stat` with the bytes of files that the system drops when memory runs short."""


_VERSION_1 = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = _Files("memory.max", "memory.current", "inactive_file")


def return_free_memory() -> None:
    """Gives the system back what the C library keeps of freed memory; does nothing where the library is not glibc."""
    if _TRIM is not None:
        _TRIM(0)


def total_memory_bytes() -> int:
    """The least of the machine's memory and the limits of this process's control groups."""
    return min([physical_memory_bytes(), *(limit for limit, _ in control_group_bytes())])


def physical_memory_bytes() -> int:
    """The machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def control_group_bytes(
    mount: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> Iterator[tuple[int, int]]:
    """Limit and use of each control group around this process that limits memory, from its own to the outermost.

    In a container the path of its group is often not visible; the mount is then the group itself.
    """
    with suppress(OSError):
        for line in own.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            files, root = (_VERSION_1, mount / "memory") if controllers else (_VERSION_2, mount)
            inner = root / path.lstrip("/")
            for folder in (inner, *inner.parents):
                if root in (folder, *folder.parents):
                    with suppress(OSError, ValueError):  # absent, or `max`
                        yield _limit_and_use(folder, files)


def _limit_and_use(folder: Path, files: _Files) -> tuple[int, int]:
    limit, used = (int((folder / name).read_text(encoding="ascii")) for name in (files.limit, files.used))
    with suppress(OSError):
        rows = (row.split() for row in (folder / "memory.stat").read_text(encoding="ascii").splitlines())
        used -= next((int(amount) for name, amount in rows if name == files.cache), 0)
    return limit, used

"""Commands in processes that lack packages; it imports nothing of gnnplace, whose imports are what such a process tries."""

import importlib.util
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

LARGE = ["networkx", "numba", "onnx_ir", "scipy.sparse.csgraph", "torch", "typer"]
"""Libraries that most commands import: every process is a fork of one that has them."""


class Blocker:
    """Finds no module of the missing packages, as if they were not installed."""

    def __init__(self, missing: Sequence[str]) -> None:
        self.missing = missing

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        if name.split(".", maxsplit=1)[0] in self.missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def block(missing: Sequence[str]) -> None:
    """Makes this process one without some packages."""
    for name in [name for name in sys.modules if name.split(".")[0] in missing]:
        del sys.modules[name]
    sys.meta_path.insert(0, Blocker(missing))
    found = importlib.util.find_spec

    def find_spec(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name.split(".", maxsplit=1)[0] in missing else found(name, package)

    importlib.util.find_spec = find_spec


def run_command(missing: Sequence[str], arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
    """Runs in the fork: a command in a folder, with files in the place of its streams."""
    for stream, name in ((1, "stdout"), (2, "stderr")):
        with (folder / name).open("wb") as file:
            os.dup2(file.fileno(), stream)
    os.chdir(folder)
    os.environ.update(environment)
    sys.argv = ["gnnplace", *arguments]
    block(missing)
    from gnnplace.cli.main import main

    main()


def without(packages: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Exit code, stdout and stderr of a command without packages, whose names commas separate."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LARGE)
    environment = {**os.environ, "GNNPLACE_CACHE": str(folder / "cache"), "PATH": "/nowhere"}
    process = context.Process(target=run_command, args=(packages.split(","), arguments, folder, environment))
    process.start()
    process.join()
    code = process.exitcode
    process.close()
    printed, errors = ((folder / name).read_text(encoding="utf-8") for name in ("stdout", "stderr"))
    assert code is not None
    return subprocess.CompletedProcess(arguments, code, printed, errors)

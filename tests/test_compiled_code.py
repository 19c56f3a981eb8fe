"""Compiled code is stored in the system's temporary folder where every other folder is read-only."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gnnplace
from tests.disks import make_read_only, small_disk


def test_a_package_and_a_home_that_can_only_be_read_still_simulate(tmp_path: Path) -> None:
    system = tmp_path / "tmp"
    system.mkdir()
    with small_disk(tmp_path / "disk", kib=64 * 1024) as disk:
        package = disk / "gnnplace"
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(Path(gnnplace.__file__).parent, package, ignore=ignored)
        make_read_only(disk)
        places = {"HOME": str(disk), "PYTHONPATH": str(disk), "TMPDIR": str(system)}
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("NUMBA", "XDG"))}
        script = "import gnnplace.graph.clustering as c; print(c.__file__)"
        done = subprocess.run(
            [sys.executable, "-P", "-c", script], env=environment | places, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(disk))
    (folder,) = system.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("named", ["NUMBA_CACHE_DIR", "XDG_CACHE_HOME"])
def test_a_place_that_the_user_has_named_is_used(tmp_path: Path, named: str) -> None:
    script = "import os, gnnplace; print(os.environ.get('NUMBA_CACHE_DIR'))"
    environment = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment | {named: str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == (str(tmp_path) if named == "NUMBA_CACHE_DIR" else "None")

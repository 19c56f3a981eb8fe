"""A driver that is killed half-way and started again goes on with what is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gnnplace.devices.detect import cpu_model
from tests.distributed.work import marks

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "tests.distributed.driver"]
BEFORE_THE_KILL = 4


def kept_numbers(kept: Path) -> list[int]:
    return [json.loads(line)["case"]["number"] for line in kept.read_text().splitlines()]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


@pytest.fixture
def killed(cluster: Any, tmp_path: Path) -> tuple[list[str], list[int]]:
    """The arguments of a driver that was killed with SIGKILL, and the cases that it had kept by then."""
    kept, left = tmp_path / "kept", tmp_path / "marks"
    left.mkdir()
    arguments = [cluster.address, str(kept), str(left)]
    with subprocess.Popen([*COMMAND, *arguments], cwd=ROOT, env=environment()) as driver:
        while not kept.exists() or kept.read_bytes().count(b"\n") < BEFORE_THE_KILL:
            time.sleep(0.05)
        driver.send_signal(signal.SIGKILL)
    assert driver.returncode == -signal.SIGKILL
    return arguments, kept_numbers(kept)


def test_a_driver_that_was_killed_goes_on_and_counts_nothing_twice(killed: tuple[list[str], list[int]]) -> None:
    arguments, before = killed
    assert BEFORE_THE_KILL <= len(before) < 12
    again = subprocess.run(
        [*COMMAND, *arguments], cwd=ROOT, env=environment(), capture_output=True, text=True, check=True, timeout=120
    )
    assert again.stdout == f"{[number**2 for number in range(12)]}\n"
    kept, left = Path(arguments[1]), Path(arguments[2])
    now = kept_numbers(kept)
    assert now[: len(before)] == before
    assert sorted(now) == list(range(12))
    assert [marks(left, str(number)) for number in before] == [1] * len(before)
    assert sum(marks(left, str(number)) for number in range(12)) <= 12 + 2  # what ran when the driver was killed
    lines = [json.loads(line)["result"] for line in kept.read_text().splitlines()]
    assert {line["host"] for line in lines} <= {"host1", "host2"}
    assert {line["cpu"] for line in lines} == {cpu_model()}

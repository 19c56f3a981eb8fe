"""A driver that is killed continues with the remaining cases when it starts again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gnnplace.devices.detect import cpu_model
from tests.distributed.work import marks

ROOT = Path(__file__).parents[2]
BEFORE_THE_KILL = 4


def kept_numbers(kept: Path) -> list[int]:
    return [json.loads(line)["case"]["number"] for line in kept.read_text().splitlines()]


def test_a_killed_driver_continues_with_the_cases_that_are_left_and_counts_none_twice(
    cluster: Any, tmp_path: Path
) -> None:
    kept, left = tmp_path / "kept", tmp_path / "marks"
    left.mkdir()
    command = [sys.executable, "-m", "tests.distributed.driver", cluster.address, str(kept), str(left)]
    with subprocess.Popen(command, cwd=ROOT) as driver:
        while not kept.exists() or kept.read_bytes().count(b"\n") < BEFORE_THE_KILL:
            time.sleep(0.05)
        driver.send_signal(signal.SIGKILL)
    assert driver.returncode == -signal.SIGKILL
    before = kept_numbers(kept)
    assert BEFORE_THE_KILL <= len(before) < 12
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    assert again.stdout == f"{[number**2 for number in range(12)]}\n"
    now = kept_numbers(kept)
    assert now[: len(before)] == before
    assert sorted(now) == list(range(12))
    assert [marks(left, str(number)) for number in before] == [1] * len(before)
    assert sum(marks(left, str(number)) for number in range(12)) <= 12 + 2  # both hosts ran a case at the kill
    lines = [json.loads(line)["result"] for line in kept.read_text().splitlines()]
    assert {line["host"] for line in lines} <= {"host1", "host2"}
    assert {line["cpu"] for line in lines} == {cpu_model()}

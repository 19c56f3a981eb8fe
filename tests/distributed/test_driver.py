"""The next start of a killed driver runs the remaining cases."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gnnplace.devices.detect import cpu_model
from gnnplace.errors import GnnplaceError
from gnnplace.files import read_json_lines
from tests.distributed.driver import NUM_CASES, squares
from tests.distributed.work import marks

BEFORE_THE_KILL = 3


def test_after_a_kill_of_the_driver_the_next_start_runs_only_the_cases_without_a_result(
    cluster: Any, tmp_path: Path
) -> None:
    kept, left = tmp_path / "kept", tmp_path / "marks"
    left.mkdir()
    arguments = (cluster.address, str(kept), str(left))
    command = [sys.executable, "-m", "tests.distributed.driver", *arguments]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2]) as driver:
        while not kept.exists() or kept.read_bytes().count(b"\n") < BEFORE_THE_KILL:
            time.sleep(0.05)
        driver.send_signal(signal.SIGKILL)
    assert driver.returncode == -signal.SIGKILL
    before = read_json_lines(kept, GnnplaceError)
    assert BEFORE_THE_KILL <= len(before) < NUM_CASES
    assert squares(*arguments) == [number**2 for number in range(NUM_CASES)]
    now = read_json_lines(kept, GnnplaceError)
    assert now[: len(before)] == before
    assert sorted(line["case"]["number"] for line in now) == list(range(NUM_CASES))
    assert {marks(left, str(line["case"]["number"])) for line in before} == {1}
    starts = sum(marks(left, str(number)) for number in range(NUM_CASES))
    assert starts <= NUM_CASES + 2  # both hosts ran a case at the kill
    assert {line["result"]["host"] for line in now} <= {"host1", "host2"}
    assert {line["result"]["cpu"] for line in now} == {cpu_model()}

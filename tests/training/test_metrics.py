"""The log of a run."""

import importlib.util
import json
from pathlib import Path

from gnnplace.training.run_state import MetricsLog, read_metrics


def test_there_is_a_line_per_update_and_updates_that_are_done_again_are_there_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path, 0) as log:
        for update in range(4):
            log.write({"update": update, "entropy": 1.0})
    with path.open("a") as file:
        file.write('{"update": 4, "entr')  # a kill in the middle of a line
    with MetricsLog(path, 2) as log:
        log.write({"update": 2, "entropy": 2.0, "problems": [{"units": 3}]})
    assert [(row["update"], row["entropy"]) for row in read_metrics(path)] == [(0, 1.0), (1, 1.0), (2, 2.0)]
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_events_are_written_where_tensorboard_is_installed(tmp_path: Path) -> None:
    with MetricsLog(tmp_path / "metrics.jsonl", 0) as log:
        log.write({"update": 0, "entropy": 1.0})
    assert any(tmp_path.glob("tensorboard/events.*")) == (importlib.util.find_spec("tensorboard") is not None)


def test_without_a_file_there_are_no_rows(tmp_path: Path) -> None:
    assert read_metrics(tmp_path / "absent") == []

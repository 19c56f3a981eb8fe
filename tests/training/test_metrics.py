"""The log of a run."""

import importlib.util
from pathlib import Path

import pytest

from gnnplace.errors import GnnplaceError
from gnnplace.files import read_json_lines
from gnnplace.training.run_state import InvalidRun, metrics_log


def test_a_resumed_log_has_one_line_per_update(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with metrics_log(path, 0) as write:
        for update in range(4):
            write({"update": update, "entropy": 1.0})
    with path.open("a") as file:
        file.write('{"update": 4, "entr')  # a kill in the middle of a line
    with metrics_log(path, 2) as write:
        write({"update": 2, "entropy": 2.0, "problems": [{"units": 3}]})
    rows = read_json_lines(path, GnnplaceError)
    assert [(row["update"], row["entropy"]) for row in rows] == [(0, 1.0), (1, 1.0), (2, 2.0)]
    assert path.read_bytes().endswith(b"\n")
    assert any(tmp_path.glob("tensorboard/events.*")) == (importlib.util.find_spec("tensorboard") is not None)


@pytest.mark.parametrize("line", ["{}", "[]", '{"update": "3"}'])
def test_a_line_without_its_update_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"update": 0}}\n{line}\n')
    with pytest.raises(InvalidRun, match=r"metrics\.jsonl: 'update' is .*; expected a count$"), metrics_log(path, 1):
        pass

"""A run record survives its file, and a damaged one is refused in one line with the place."""

import json
from pathlib import Path
from typing import Any

import pytest

from gnnplace.errors import GnnplaceError
from gnnplace.run_record import RunRecord, read_run


def written(run: Any, folder: Path) -> Path:
    path = folder / "run.json"
    path.write_text(json.dumps(run))
    return path


@pytest.mark.parametrize("makespan_s", [0.006, float("inf")])
def test_a_run_survives_its_file(run: RunRecord, tmp_path: Path, makespan_s: float) -> None:
    run["summary"]["makespan_s"] = makespan_s
    assert read_run(written(run, tmp_path)) == run


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda run: run.update(format="gnnplace.run/9"), r"format: Input should be 'gnnplace.run/1'"),
        (lambda run: run.pop("ops"), r"ops: Field required"),
        (lambda run: run["transfers"][0].update(source="gpu:0"), r"transfers\.0\.source"),
        (lambda run: run["ops"]["start_s"].pop(), "columns of ops differ in length"),
        (lambda run: run["ops"]["device"].__setitem__(0, 2), "an op or device that it does not list"),
        (lambda run: run["edges"].append((0, 3, 1)), "an op or device that it does not list"),
    ],
)
def test_a_damaged_run_is_refused_with_the_place(run: Any, tmp_path: Path, damage: Any, message: str) -> None:
    damage(run)
    with pytest.raises(GnnplaceError, match=message) as caught:
        read_run(written(run, tmp_path))
    assert "\n" not in str(caught.value)
    assert "run.json" in str(caught.value)


def test_a_file_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GnnplaceError, match="the whole file"):
        read_run(written([1, 2], tmp_path))
    with pytest.raises(GnnplaceError, match="cannot be read"):
        read_run(tmp_path / "absent.json")

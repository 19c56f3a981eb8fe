"""Checks of a folder of results: every file is complete at any moment."""

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path

from gnnplace.cost.measured import read_costs
from gnnplace.cost.measurement_store import MeasurementStore
from gnnplace.errors import GnnplaceError
from gnnplace.files import read_json, read_json_lines
from gnnplace.onnx_io.annotate import annotated_segments
from gnnplace.onnx_io.read import read_onnx
from gnnplace.policy.checkpoint import load_policy
from gnnplace.run_record import read_run
from gnnplace.running.session import Session
from gnnplace.training.run_state import read_state
from tests.robustness.interrupted.commands import SYSTEM


def broken_files(folder: Path) -> list[str]:
    """A line for every file that its reader refuses or that lacks its end."""
    problems = []
    for pattern, read in _READERS.items():
        for path in sorted(folder.glob(pattern)):
            try:
                read(path)
            except (GnnplaceError, OSError, sqlite3.Error, ValueError, AssertionError) as error:
                problems.append(f"{path.relative_to(folder)}: {error or 'is not whole'}")
    return problems


def leftovers(folder: Path) -> list[str]:
    """Names of temporary files and locks of writers; files of other libraries do not count."""
    unfinished = (path for pattern in ("*.tmp", "*.lock", "*-journal") for path in folder.rglob(pattern))
    return sorted({str(path.relative_to(folder)) for path in (*unfinished, *(folder / SYSTEM).glob("gnnplace-*"))})


def digest(folder: Path, names: Iterable[str]) -> str:
    """Hash of the contents of files."""
    found = hashlib.sha256()
    for name in names:
        found.update((folder / name).read_bytes())
    return found.hexdigest()


def _check_placed(run: Path) -> None:
    """A folder with `run.json` has all other files too, and a session loads it."""
    folder = run.parent
    document = read_run(run)
    assert len(read_json(folder / "placement.json", GnnplaceError)["assignment"]) == document["summary"]["ops"]
    _, segments = annotated_segments(read_onnx(folder / "placed.onnx"))
    assert sum(len(segment.ops) for segment in segments) == document["summary"]["ops"]
    assert (folder / "report.html").exists()
    Session(folder).close()


def _check_end(page: Path) -> None:
    assert page.read_text(encoding="utf-8").rstrip().endswith("</html>")


def _check_store(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        (answer,) = connection.execute("PRAGMA integrity_check").fetchone()
    assert answer == "ok", answer
    MeasurementStore(path, {}).costs()


def _check_policy(path: Path) -> None:
    if path.with_suffix(".json").exists():  # a policy without its card is not read
        load_policy(path)


_READERS: Mapping[str, Callable[[Path], object]] = {
    "placed/run.json": _check_placed,
    "placed/placement.json": lambda path: read_json(path, GnnplaceError),
    "placed/placed.onnx": read_onnx,
    "placed/report.html": _check_end,
    "placed/parts/manifest.json": lambda path: Session(path.parents[1]).close(),
    "run/state.pt": read_state,
    "run/policy.safetensors": _check_policy,
    "run/metrics.jsonl": lambda path: read_json_lines(path, GnnplaceError),
    "costs.json": read_costs,
    "result.json": lambda path: read_json(path, GnnplaceError),
    "result.json.cases": lambda path: read_json_lines(path, GnnplaceError),
    "export.onnx": read_onnx,
    "cache/measurements.sqlite": _check_store,
}

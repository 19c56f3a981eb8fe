"""The runs of a stored result, so that a bench of many hours can be made in parts: what is there is not run again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gnnplace.bench.generalization.run import FACTS, Run
from gnnplace.bench.resumable import finished_runs
from gnnplace.errors import GnnplaceError
from gnnplace.files import read_json, read_json_lines, write_json_lines

__all__ = ["take_over"]

_OF_THE_TABLE = ("best_known_s", "results")
"""What a result adds to the facts of a case."""


def take_over(stored: Path, kept: Path | None) -> None:
    """Appends to the file `kept` what `stored`, written by this bench, has and `kept` lacks.

    Raises:
        GnnplaceError: there is no file to keep runs in, or `stored` is no result of this bench.
    """
    if kept is None:
        raise GnnplaceError(f"{stored}: can be extended only into a file; add --out FILE")
    document = read_json(stored, GnnplaceError)
    try:
        versions = document["versions"]
        runs = dict(_runs(document["details"]["cases"], document["seed"]))
    except (KeyError, TypeError, AttributeError) as problem:
        raise GnnplaceError(f"{stored}: is no result of bench generalization ({problem!r})") from None
    known = finished_runs(kept, Run, versions)
    new = [
        {"case": vars(run), "versions": versions, "result": result} for run, result in runs.items() if run not in known
    ]
    write_json_lines(kept, [*read_json_lines(kept, GnnplaceError), *new])


def _runs(cases: Mapping[str, Mapping[str, Any]], seed: int) -> Iterator[tuple[Run, dict[str, Any]]]:
    for name, case in cases.items():
        yield Run(name, FACTS, seed, ""), {key: value for key, value in case.items() if key not in _OF_THE_TABLE}
        for row, lines in case["results"].items():
            for line in lines:
                result = {key: value for key, value in line.items() if key not in ("seed", "depends_on", "ratio")}
                yield Run(name, row, line["seed"], line["depends_on"]), result

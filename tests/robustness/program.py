"""Command line of the robustness suites: `python -m tests.robustness.SUITE`, from the root of the repository."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gnnplace.bench.harness import BenchOptions, BenchResult, write_result
from gnnplace.errors import GnnplaceError

__all__ = ["main"]


def main(suite: str, run: Callable[[BenchOptions], BenchResult], arguments: list[str] | None = None) -> None:
    """Runs a suite with the options of the command line, prints its rows, and with `--out` stores its result."""
    program = ("python", "-m", f"tests.robustness.{suite}")
    parser = argparse.ArgumentParser(prog=" ".join(program), description=(run.__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--evaluations", type=int, help="inputs of each kind of file; for hostile")
    parser.add_argument("--seeds", type=int, help="kills of each command; for interrupted")
    parser.add_argument("--only", action="append", default=[], help="part of a name; may be repeated")
    parser.add_argument("--rows", metavar="A,B", help="sources of inputs, chance or guided; for hostile")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, help="file for the result; finished cases are kept in OUT.cases")
    chosen = parser.parse_args(arguments)
    options = BenchOptions(
        chosen.seed,
        chosen.evaluations,
        chosen.seeds,
        tuple(chosen.only),
        tuple(chosen.rows.split(",")) if chosen.rows else (),
        jobs=chosen.jobs,
        cases_file=None if chosen.out is None else chosen.out.with_name(f"{chosen.out.name}.cases"),
        on_progress=lambda text: print(text, file=sys.stderr),
    )
    try:
        result = replace(run(options), program=program)
    except GnnplaceError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    if chosen.out is not None:
        write_result(result, chosen.out)
    print(json.dumps({"rows": [dict(row) for row in result.rows], "summary": dict(result.summary)}, indent=1))

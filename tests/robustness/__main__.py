"""Command line of the robustness suites: `python -m tests.robustness SUITE`, from the root of the repository."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path

from gnnplace.bench.harness import BenchOptions, write_result
from gnnplace.errors import GnnplaceError


def main() -> None:
    """Runs a suite, prints its rows, and with `--out` stores its result."""
    parser = argparse.ArgumentParser(prog="python -m tests.robustness")
    parser.add_argument("suite", choices=("backend", "hostile", "interrupted"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--evaluations", type=int, help="inputs of each kind of file; for hostile")
    parser.add_argument("--seeds", type=int, help="kills of each command; for interrupted")
    parser.add_argument("--only", action="append", default=[], help="part of a name; may be repeated")
    parser.add_argument("--rows", metavar="A,B", help="sources of inputs, chance or guided; for hostile")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, help="file for the result; finished cases are kept in OUT.cases")
    chosen = parser.parse_args()
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
    suite = importlib.import_module(f"tests.robustness.{chosen.suite}.suite")
    try:
        result = getattr(suite, f"bench_{chosen.suite}")(options)
    except GnnplaceError as error:
        parser.exit(2, f"{parser.prog} {chosen.suite}: {error}\n")
    if chosen.out is not None:
        write_result(replace(result, program=(*parser.prog.split(), chosen.suite)), chosen.out)
    print(json.dumps({"rows": [dict(row) for row in result.rows], "summary": dict(result.summary)}, indent=1))


if __name__ == "__main__":  # a process that this one starts imports this file too
    main()

"""Command line of the robustness suites: `python -m tests.robustness SUITE`, from the root of the repository."""

import argparse
import importlib
import json
import sys
from pathlib import Path

from gnnplace.bench.harness import BenchOptions
from gnnplace.errors import GnnplaceError
from gnnplace.files import write_text


def main() -> None:
    """Runs a suite, prints its rows, and with `--out` stores its result."""
    parser = argparse.ArgumentParser(prog="python -m tests.robustness")
    parser.add_argument("suite", choices=("backend", "hostile", "interrupted"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--evaluations", type=int, help="inputs of each kind of file; for hostile")
    parser.add_argument("--seeds", type=int, help="kills of each command; for interrupted")
    parser.add_argument("--only", action="append", default=[], help="part of a name; may be repeated")
    parser.add_argument("--rows", metavar="A,B", default="", help="sources of inputs, chance or guided; for hostile")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, help="file for the result; finished cases are kept in OUT.cases")
    chosen = vars(parser.parse_args())
    name, out = chosen.pop("suite"), chosen.pop("out")
    kept = None if out is None else out.with_name(f"{out.name}.cases")
    chosen |= {"only": tuple(chosen["only"]), "rows": tuple(filter(None, chosen["rows"].split(",")))}
    options = BenchOptions(**chosen, cases_file=kept, on_progress=lambda text: print(text, file=sys.stderr))
    try:
        result = getattr(importlib.import_module(f"tests.robustness.{name}.suite"), f"bench_{name}")(options)
    except GnnplaceError as error:
        parser.exit(2, f"{parser.prog} {name}: {error}\n")
    if out is not None:
        document = result.document()
        document["command"] = document["command"].replace("gnnplace bench", parser.prog)
        write_text(out, json.dumps(document, indent=1, allow_nan=False) + "\n")
    print(json.dumps({"rows": [dict(row) for row in result.rows], "summary": dict(result.summary)}, indent=1))


if __name__ == "__main__":  # a process that this one starts imports this file too
    main()

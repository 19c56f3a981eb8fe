"""`gnnplace bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gnnplace.cli.options import JsonOption, SeedOption
from gnnplace.cli.output import print_json, print_table

__all__ = ["bench"]


def bench(
    suite: Annotated[str, typer.Argument(metavar="SUITE", help="engine, planners, equality, execution or zoo")],
    seed: SeedOption = 0,
    out: Annotated[Path | None, typer.Option(help="file for the result, with command, seed and versions")] = None,
    json: JsonOption = False,
) -> None:
    """Run one of the comparisons that the README's numbers come from."""
    from gnnplace.bench.result import write_result
    from gnnplace.bench.suites import run_suite

    result = run_suite(suite, seed)
    if out is not None:
        write_result(result, out)
    if json:
        print_json(result.document())
        return
    columns = list(dict.fromkeys(key for row in result.rows for key in row))
    print_table(columns, [[_cell(row.get(column)) for column in columns] for row in result.rows])
    print_table(["summary", ""], [[key, _cell(value)] for key, value in result.summary.items()])


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)

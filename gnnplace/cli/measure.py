"""`gnnplace bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gnnplace.cli.completion import suites
from gnnplace.cli.options import EvaluationsOption, JsonOption, QuietOption, RayOption, SeedOption
from gnnplace.cli.output import hint, note, print_json, print_table
from gnnplace.cli.progress import bar

__all__ = ["bench"]

_WIDE = 60


def bench(
    suite: Annotated[
        str,
        typer.Argument(
            metavar="SUITE",
            help="engine, planners, equality, execution, zoo, seeds, spotlight, generalization, measured, fidelity, scale, ray or report",
            autocompletion=suites,
        ),
    ],
    seed: SeedOption = 0,
    evaluations: EvaluationsOption = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="how many, counted from --seed; for seeds, spotlight, generalization and measured"),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="part of a row's or case's name; may be repeated; for the same four, execution, fidelity and scale"
        ),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="what is compared on every case; for generalization, measured, and with --extend for seeds and spotlight",
        ),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(help="trained policy; the shipped one if not given; for generalization"),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(min=1, help="processes; for zoo, seeds, spotlight and generalization"),
    ] = 1,
    extend: Annotated[
        Path | None,
        typer.Option(
            help="stored result from which all that is not run anew is taken; for generalization, and with --rows for seeds and spotlight"
        ),
    ] = None,
    ray: RayOption = None,
    out: Annotated[Path | None, typer.Option(help="file for the result, with command, seed and versions")] = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run one of the comparisons that the README's numbers come from.

    --ray runs the cases of seeds, spotlight and generalization on the cores of a cluster.
    With --out FILE, seeds, spotlight, generalization and measured keep every finished run in FILE.cases and go on from
    there; delete it after a change to a planner. A new policy is noticed, and what hangs on it is run again.
    """
    from gnnplace.bench.harness import BenchOptions, write_result
    from gnnplace.bench.suites import run_suite

    cases_file = None if out is None else out.with_name(f"{out.name}.cases")
    names = tuple(rows.split(",")) if rows else ()
    options = BenchOptions(
        seed, evaluations, seeds, tuple(only or ()), names, policy, jobs, cases_file, note, extend, ray
    )
    with bar(f"bench {suite}"):
        result = run_suite(suite, options)
    if out is not None:
        write_result(result, out)
    if json:
        print_json(result.document())
        return
    columns = list(result.columns or dict.fromkeys(key for row in result.rows for key in row))
    print_table(columns, [[_cell(row.get(column)) for column in columns] for row in result.rows])
    print_table(["summary", ""], [[key, _cell(value)] for key, value in result.summary.items()])
    hint(_next(suite, out))


def _next(suite: str, out: Path | None) -> str:
    from gnnplace.bench.suites import SUITES

    if out is None:
        return f"gnnplace bench {suite} --out FILE.json keeps the result"
    return f"gnnplace report {out} draws it" if SUITES[suite].has_page else f"the result is in {out}"


def _cell(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _WIDE else f"{text[: _WIDE - 1]}…"

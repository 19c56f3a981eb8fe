"""`gnnplace run`, `profile` and `bench`: they execute models and measure."""

from pathlib import Path
from typing import Annotated

import typer

from gnnplace.bench.suites import SUITES, run_suite, takers
from gnnplace.cli import options
from gnnplace.cli.completion import suites
from gnnplace.cli.output import bar, hint, note, print_answer, print_json, print_table, warn
from gnnplace.files import check_target
from gnnplace.units import format_s

_MAX_CELL = 60
"""Characters of a cell in a bench's table."""


def run(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR|MODEL", help="folder written by place --out, or its placed.onnx alone")
    ],
    input: Annotated[
        Path | None, typer.Option(metavar="X.npz", help="inputs by name; random ones if not given")
    ] = None,
    dim: options.InputDimOption = None,
    output: Annotated[Path | None, typer.Option(metavar="Y.npz", help="file for the outputs")] = None,
    repeat: Annotated[int, typer.Option(min=1, help="number of runs")] = 1,
    custom_ops: options.CustomOpsOption = None,
    ray: options.RayOption = None,
    seed: options.SeedOption = 0,
    json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Run a placed model on its devices; with --repeat, also the same number of pipelined requests.

    Devices such as host1/cpu:0 are on the hosts of a Ray cluster, which --ray names.
    """
    import gnnplace
    from gnnplace.cli.run_placed import answer_lines, feed_for, output_table, run_placed

    if output is not None:
        check_target(output)
    name, where = ("Session", [str(folder)]) if ray is None else ("DistributedSession", [str(folder), ray])
    with bar("loading") as advance, getattr(gnnplace, name)(*where, custom_ops=custom_ops or ()) as session:

        def show(number: int, best_s: float) -> None:
            advance(number / repeat, "running", f"best {format_s(best_s)}")

        feed = feed_for(folder, input, seed, dim, lambda text: warn([text]))
        result = run_placed(session, feed, output, repeat, show, is_random=input is None)
    if json:
        print_json(result)
        return
    head, *rows = output_table(result)
    print_table(head, rows)
    for line in answer_lines(result):
        print_answer(line)
    cluster = "" if ray is None else f" --ray {ray}"
    called = f"gnnplace.{name}({', '.join(map(repr, where))})"
    hint(f"gnnplace run {folder}{cluster} --repeat 100" if repeat == 1 else f"in Python: {called}")


def profile(
    model: options.ModelArgument,
    devices: options.DevicesOption,
    out: Annotated[Path, typer.Option(metavar="costs.json", help="file for the costs")],
    dim: options.DimOption = None,
    input: options.InputOption = None,
    custom_ops: options.CustomOpsOption = None,
    seed: options.SeedOption = 0,
    force: options.ForceOption = False,
    json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Measure what each op of a model costs on real devices, fit the roofline to it, and probe the link between every two devices.

    Later commands on this machine reuse everything measured. costs.json contains all known costs of these kinds of devices
    and of the links between these devices.
    """
    from gnnplace.api import profile as run

    check_target(out)
    with bar("running on every device, probing links"):
        result = run(
            model, devices, out, dims=options.parse_dims(dim), inputs=input, custom_ops=custom_ops or (), seed=seed, force=force,
            on_warning=lambda text: warn([text]),
        )  # fmt: skip
    if json:
        print_json(result)
        return
    rows = [
        [kind, str(row["ops"]), format_s(row["dispatch_overhead_s"] or 0.0), f"{row['roofline_relative_error']:.0%}"]
        for kind, row in result["kinds"].items()
    ]
    print_table(["kind", "op signatures", "dispatch", "roofline error"], rows)
    print_answer(f"costs: {out}")
    hint(f"gnnplace place {model} --devices {devices} --measure --out placed")


def bench(
    suite: Annotated[
        str,
        typer.Argument(
            metavar="SUITE",
            help=", ".join(SUITES),
            autocompletion=suites,
        ),
    ],
    seed: options.SeedOption = 0,
    evaluations: options.EvaluationsOption = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=f"number of seeds, counted from --seed; for {takers('--seeds')}",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"part of a row's or case's name; may be repeated; for {takers('--only')}"),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help=f"planners, searches or settings to compare on every case; for {takers('--rows')}; for seeds and spotlight with --extend",
        ),
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(help=f"trained policy; the shipped one if not given; for {takers('--policy')}")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help=f"processes; for {takers('--jobs')}")] = 1,
    extend: Annotated[
        Path | None,
        typer.Option(
            help=f"stored result that supplies all cases that are not run again; for {takers('--extend')}; for seeds and spotlight with --rows; for records a placement.json"
        ),
    ] = None,
    ray: options.RayOption = None,
    out: Annotated[Path | None, typer.Option(help="file for the result, with command, seed and versions")] = None,
    json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Run one of the comparisons that the README's numbers come from.

    --ray runs the cases of seeds, spotlight, generalization, ladder, servers, sealed, encoder and records on the cores of a cluster.
    With --out FILE, suites of many runs keep every finished one in FILE.cases, and the same command continues there. Delete that
    file after a change to a planner. Cases that depend on a new policy are run again.
    """
    from gnnplace.bench.harness import BenchOptions, write_result

    if out is not None:
        check_target(out)
    cases_file = None if out is None else out.with_name(f"{out.name}.cases")
    names = tuple(rows.split(",")) if rows else ()
    chosen = BenchOptions(
        seed, evaluations, seeds, tuple(only or ()), names, policy, jobs, cases_file, note, extend, ray
    )
    with bar(f"bench {suite}"):
        result = run_suite(suite, chosen)
    if out is not None:
        write_result(result, out)
    if json:
        print_json(result.document())
        return
    columns = list(result.columns or dict.fromkeys(key for row in result.rows for key in row))
    print_table(columns, [[_cell(row.get(column)) for column in columns] for row in result.rows])
    print_table(["summary", ""], [[key, _cell(value)] for key, value in result.summary.items()])
    if out is None:
        hint(f"gnnplace bench {suite} --out FILE.json keeps the result")
    else:
        hint(f"gnnplace report {out} draws it" if SUITES[suite].has_page else f"the result is in {out}")


def _cell(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _MAX_CELL else f"{text[: _MAX_CELL - 1]}…"

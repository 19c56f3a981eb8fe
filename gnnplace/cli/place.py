"""`gnnplace place` and `gnnplace report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gnnplace.cli.options import (
    CustomOpsOption,
    DevicesOption,
    DimOption,
    DimsObjectiveOption,
    EvaluationsOption,
    ForceOption,
    GroupsOption,
    JsonOption,
    ModelArgument,
    ObjectiveOption,
    PlannerOption,
    QuietOption,
    RayOption,
    SecondsOption,
    SeedOption,
    parse_dims,
)
from gnnplace.cli.output import hint, note, print_answer, print_json, print_table, warn
from gnnplace.cli.progress import search_progress
from gnnplace.errors import GnnplaceError, InfeasiblePlacement
from gnnplace.interruption import first_interrupt_noted
from gnnplace.units import format_s

if TYPE_CHECKING:
    from gnnplace.api import Plan

__all__ = ["place", "report"]

PictureFormat = Literal["svg", "png"]
_TRACE = "file for the simulated schedule, which ui.perfetto.dev and chrome://tracing open"


def place(
    model: ModelArgument,
    devices: DevicesOption,
    planner: PlannerOption = "gnn",
    objective: ObjectiveOption = "latency",
    evaluations: EvaluationsOption = None,
    seconds: SecondsOption = None,
    measure: Annotated[bool, typer.Option("--measure", help="execute placements: the reward is measured")] = False,
    force: ForceOption = False,
    policy: Annotated[Path | None, typer.Option(help="a trained policy for gnn; the shipped one if not given")] = None,
    seed: SeedOption = 0,
    groups: GroupsOption = None,
    dim: DimOption = None,
    dims_objective: DimsObjectiveOption = "worst",
    custom_ops: CustomOpsOption = None,
    ray: RayOption = None,
    out: Annotated[Path | None, typer.Option(help="folder for the placed model and the report")] = None,
    trace: Annotated[Path | None, typer.Option(help=_TRACE)] = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Decide which device runs which op, and write the placed model. Ctrl-C ends the search, with the best so far."""
    from gnnplace.api import PlaceOptions
    from gnnplace.api import place as run
    from gnnplace.report.trace import write_trace

    if evaluations is None:
        evaluations = (300 if measure else 2000) if seconds is None else None
    with search_progress(evaluations, seconds) as on_progress:
        options = PlaceOptions(
            planner=planner, objective=objective, evaluations=evaluations, seconds=seconds, measure=measure, force=force,
            policy=policy, seed=seed, max_groups=groups, dims=parse_dims(dim), dims_objective=dims_objective,
            custom_ops=tuple(custom_ops or ()), ray=ray, on_progress=on_progress,
        )  # fmt: skip
        plan = run(model, devices, options)
    warn([*plan.setup.workload.warnings, *plan.warnings])
    if not plan.evaluation.feasible:
        if json:
            print_json(plan.summary())
        raise InfeasiblePlacement(plan.why_infeasible())
    with first_interrupt_noted(plan.interrupted, _say_writing):
        saved = None if out is None else plan.save(out)
        if trace is not None:
            write_trace(plan.record(saved), trace)
        if json:
            print_json(plan.summary(saved))
        else:
            _print(plan, saved, ray)


def _print(plan: Plan, saved: Path | None, ray: str | None) -> None:
    """The answer, for people."""
    print_table(
        ["planner", "step", "gap", "evaluations", "search"],
        [
            [
                row["planner"],
                "-" if row["makespan_s"] is None else format_s(row["makespan_s"]),
                "-" if row["gap"] is None else f"{row['gap']:.1%}",
                str(row["evaluations"] or "-"),
                format_s(row["wall_s"]) if row["wall_s"] else "-",
            ]
            for row in plan.rows
        ],
        {
            number: "green"
            for number, row in enumerate(plan.rows)
            if row["planner"] == (plan.kept or plan.solution.planner)
        },
    )
    if plan.measured is not None:
        print_table(
            ["side by side", "median", "+-", "repeats"],
            [
                [run["label"], format_s(run["median_s"]), format_s(run["spread_s"]), str(run["repeats"])]
                for run in plan.measured["runs"]
            ],
        )
    print_answer(f"{plan.setup.workload.name}: {plan.headline()}")
    if saved is not None:
        print(f"report: {saved / 'report.html'}")
    hint(_next(plan, saved, ray))


def _next(plan: Plan, saved: Path | None, ray: str | None) -> str:
    from gnnplace.devices.real_names import host_of
    from gnnplace.running.devices import is_real

    if saved is None:
        return "the same with --out DIR keeps it"
    if plan.setup.workload.onnx is None:
        return "look at the report"
    cluster = f" --ray {ray}" if any(map(host_of, plan.setup.topology.device_names)) else ""
    return (
        f"gnnplace run {saved}{cluster}"
        if is_real(plan.setup.topology)
        else "the same with --devices auto --measure runs here"
    )


def _say_writing() -> None:
    note("writing what was found; Ctrl-C again ends at once")


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR|RESULT", help="what place wrote, or the result of a bench")],
    trace: Annotated[Path | None, typer.Option(help=_TRACE)] = None,
    pictures: Annotated[Path | None, typer.Option(help="folder for every picture of the report, for papers")] = None,
    picture_format: Annotated[PictureFormat, typer.Option("--format", help="of the pictures")] = "svg",
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Draw report.html again from run.json, or the tables of a bench beside its result."""
    from gnnplace.report.bench_page import read_bench, write_bench_page
    from gnnplace.report.page import write_report
    from gnnplace.report.pictures import write_pictures
    from gnnplace.report.trace import write_trace
    from gnnplace.run_record import read_run

    written: list[Path] = []
    if folder.suffix == ".json":
        if trace is not None or pictures is not None:
            raise GnnplaceError(f"{folder}: only a run has a trace and pictures; give the folder that place wrote")
        path = write_bench_page(read_bench(folder), folder.with_suffix(".html"))
    else:
        run = read_run(folder / "run.json")
        path = write_report(run, folder)
        if trace is not None:
            written.append(write_trace(run, trace))
        if pictures is not None:
            written.extend(write_pictures(path, pictures, picture_format))
    if json:
        print_json({"report": str(path), **({"written": list(map(str, written))} if written else {})})
    else:
        print(path, *written, sep="\n")
        hint("open it in a browser")

"""`gnnplace place` and `gnnplace report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    SecondsOption,
    SeedOption,
    parse_dims,
)
from gnnplace.cli.output import hint, note, print_answer, print_json, print_table, warn
from gnnplace.cli.progress import search_progress
from gnnplace.errors import InfeasiblePlacement
from gnnplace.interruption import first_interrupt_noted
from gnnplace.units import format_s

if TYPE_CHECKING:
    from gnnplace.api import Plan

__all__ = ["place", "report"]


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
    out: Annotated[Path | None, typer.Option(help="folder for the placed model and the report")] = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Decide which device runs which op, and write the placed model. Ctrl-C ends the search, with the best so far."""
    from gnnplace.api import PlaceOptions
    from gnnplace.api import place as run

    if evaluations is None:
        evaluations = (300 if measure else 2000) if seconds is None else None
    with search_progress(evaluations, seconds) as on_progress:
        options = PlaceOptions(
            planner=planner, objective=objective, evaluations=evaluations, seconds=seconds, measure=measure, force=force,
            policy=policy, seed=seed, max_groups=groups, dims=parse_dims(dim), dims_objective=dims_objective,
            custom_ops=tuple(custom_ops or ()), on_progress=on_progress,
        )  # fmt: skip
        plan = run(model, devices, options)
    warn([*plan.setting.workload.warnings, *plan.warnings])
    if not plan.evaluation.feasible:
        if json:
            print_json(plan.summary())
        raise InfeasiblePlacement(plan.why_infeasible())
    with first_interrupt_noted(plan.interrupted, _say_writing):
        saved = None if out is None else plan.save(out)
        if json:
            print_json(plan.summary(saved))
        else:
            _print(plan, saved)


def _print(plan: Plan, saved: Path | None) -> None:
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
    print_answer(f"{plan.setting.workload.name}: {plan.headline()}")
    if saved is not None:
        print(f"report: {saved / 'report.html'}")
    hint(_next(plan, saved))


def _next(plan: Plan, saved: Path | None) -> str:
    from gnnplace.executors.devices import is_real

    if saved is None:
        return "the same with --out DIR keeps it"
    if plan.setting.workload.onnx is None:
        return "look at the report"
    return (
        f"gnnplace run {saved}"
        if is_real(plan.setting.topology)
        else "the same with --devices auto --measure runs here"
    )


def _say_writing() -> None:
    note("writing what was found; Ctrl-C again ends at once")


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR|RESULT", help="what place wrote, or the result of a bench")],
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Draw report.html again from run.json, or the tables of a bench beside its result."""
    from gnnplace.report.bench_page import read_bench, write_bench_page
    from gnnplace.report.page import write_report
    from gnnplace.report.run_record import read_run

    if folder.suffix == ".json":
        path = write_bench_page(read_bench(folder), folder.with_suffix(".html"))
    else:
        path = write_report(read_run(folder / "run.json"), folder)
    if json:
        print_json({"report": str(path)})
    else:
        print(path)
        hint("open it in a browser")

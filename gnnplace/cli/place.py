"""`gnnplace place`, `compare` and `evaluate`: searches for placements, and the cost of a placement."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gnnplace.cli import options
from gnnplace.cli.completion import planners as planner_names
from gnnplace.cli.output import hint, note, print_answer, print_json, print_table, search_progress, warn
from gnnplace.errors import GnnplaceError, InfeasiblePlacement
from gnnplace.files import check_target
from gnnplace.interruption import stop_requests
from gnnplace.units import format_s

if TYPE_CHECKING:
    from gnnplace.api import Plan
    from gnnplace.run_record import PlannerRow

_COLUMNS = ("planner", "step", "gap", "evaluations", "search")


def place(
    model: options.ModelArgument,
    devices: options.DevicesUnlessRecordOption = None,
    planner: options.PlannerOption = "gnn",
    objective: options.ObjectiveOption = "latency",
    evaluations: options.EvaluationsOption = None,
    seconds: options.SecondsOption = None,
    measure: Annotated[bool, typer.Option("--measure", help="execute placements: the reward is measured")] = False,
    force: options.ForceOption = False,
    policy: options.PolicyOption = None,
    seed: options.SeedOption = 0,
    groups: options.GroupsOption = None,
    dim: options.DimOption = None,
    dims_objective: options.DimsObjectiveOption = "worst",
    input: options.InputOption = None,
    custom_ops: options.CustomOpsOption = None,
    ray: options.RayOption = None,
    out: Annotated[Path | None, typer.Option(help="folder for the placed model and the report")] = None,
    trace: options.TraceOption = None,
    json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Decide which device runs which op, and write the placed model. Ctrl-C ends the search and keeps the best placement."""
    from gnnplace.api import place as run
    from gnnplace.report.trace import write_trace

    if out is not None:
        check_target(out, is_folder=True)
    if trace is not None:
        check_target(trace)
    if evaluations is None and seconds is None:
        evaluations = 300 if measure else 2000
    with search_progress(evaluations, seconds) as on_progress:
        plan = run(
            model, devices, planner=planner, objective=objective, evaluations=evaluations, seconds=seconds,
            measure=measure, force=force, policy=policy, seed=seed, max_groups=groups, dims=options.parse_dims(dim),
            dims_objective=dims_objective, inputs=input, custom_ops=custom_ops or (), ray=ray, on_progress=on_progress,
        )  # fmt: skip
    warn([*plan.setup.workload.warnings, *plan.warnings])
    if not plan.evaluation.feasible:
        if json:
            print_json(plan.summary())
        raise InfeasiblePlacement(plan.why_infeasible())
    with stop_requests(plan.interrupted, lambda: note("writing what was found; Ctrl-C again ends at once")):
        saved = None if out is None else plan.save(out)
        if trace is not None:
            write_trace(plan.record(saved), trace)
        if json:
            print_json(plan.summary(saved))
        else:
            _print_plan(plan, saved, input, ray)


def _print_plan(plan: Plan, saved: Path | None, input: Path | None, ray: str | None) -> None:
    kept = plan.kept or plan.solution.planner
    marked = {number: "green" for number, row in enumerate(plan.rows) if row["planner"] == kept}
    print_table(_COLUMNS, [_cells(row) for row in plan.rows], marked)
    if plan.measured is not None:
        print_table(
            ["side by side" if plan.measured.get("confirmed", True) else "in the search", "median", "+-", "repeats"],
            [
                [run["label"], format_s(run["median_s"]), format_s(run["spread_s"]), str(run["repeats"])]
                for run in plan.measured["runs"]
            ],
        )
    print_answer(f"{plan.setup.workload.name}: {plan.headline()}")
    if saved is not None:
        print(f"report: {saved / 'report.html'}")
    hint(_next_step(plan, saved, input, ray))


def _next_step(plan: Plan, saved: Path | None, input: Path | None, ray: str | None) -> str:
    from gnnplace.devices.real_names import host_of
    from gnnplace.running.devices import is_real

    if saved is None:
        return "the same with --out DIR keeps it"
    if plan.setup.workload.onnx is None:
        return "look at the report"
    if not is_real(plan.setup.topology):
        return "the same with --devices auto --measure runs here"
    on_hosts = any(map(host_of, plan.setup.topology.device_names))
    return f"gnnplace run {saved}" + (f" --input {input}" if input else "") + (f" --ray {ray}" if on_hosts else "")


def compare(
    model: options.ModelArgument,
    planners: Annotated[
        str,
        typer.Option(
            metavar="A,B", help="names with commas between them; see gnnplace planners", autocompletion=planner_names
        ),
    ],
    devices: options.DevicesUnlessRecordOption = None,
    objective: options.ObjectiveOption = "latency",
    evaluations: options.EvaluationsOption = None,
    seconds: options.SecondsOption = None,
    policy: options.PolicyOption = None,
    seed: options.SeedOption = 0,
    groups: options.GroupsOption = None,
    dim: options.DimOption = None,
    dims_objective: options.DimsObjectiveOption = "worst",
    ray: options.RayOption = None,
    json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Compare several planners on one simulated problem with the same budget."""
    from gnnplace.api import compare as run
    from gnnplace.run_record import objective_s

    names = [name.strip() for name in planners.split(",") if name.strip()]
    if not names:
        raise GnnplaceError("--planners is empty; name at least one, for example heft,annealing,gnn")
    if evaluations is None and seconds is None:
        evaluations = 2000
    with search_progress(evaluations, seconds) as on_progress:
        rows = run(
            model, devices, names, objective=objective, evaluations=evaluations, seconds=seconds, policy=policy, seed=seed,
            max_groups=groups, dims=options.parse_dims(dim), dims_objective=dims_objective, ray=ray, on_progress=on_progress,
            on_warning=lambda text: warn([text]),
        )  # fmt: skip
    if json:
        print_json({"model": model, "devices": devices, "rows": rows})
    else:
        steps = {number: took for number, row in enumerate(rows) if row["feasible"] and (took := objective_s(row))}
        print_table(
            [*_COLUMNS, "fits", *(["host"] if ray else []), ""],
            [
                [
                    *_cells(row),
                    "yes" if row["feasible"] else "no",
                    *([row.get("host", "")] if ray else []),
                    row["error"] or "",
                ]
                for row in rows
            ],
            {min(steps, key=steps.__getitem__): "green"} if steps else {},
        )
        if steps:
            hint(f"gnnplace place {_problem(model, devices)} --planner NAME --out DIR keeps one of them")
    if not any(row["feasible"] for row in rows):
        errors = [row["error"] for row in rows if row["error"]]
        if len(errors) == len(rows):
            raise InfeasiblePlacement(f"no planner found a placement of {model}; {names[0]}: {errors[0]}")
        raise InfeasiblePlacement(f"no planner found a placement of {model} that fits {devices or 'its devices'}")


def _problem(model: str, devices: str | None) -> str:
    """Model and devices as a command names them."""
    return model if devices is None else f"{model} --devices {devices}"


def _cells(row: PlannerRow) -> list[str]:
    from gnnplace.run_record import objective_s

    return [
        row["planner"],
        "-" if (took := objective_s(row)) is None else format_s(took),
        "-" if row["gap"] is None else f"{row['gap']:.1%}",
        str(row["evaluations"] or "-"),
        format_s(row["wall_s"]) if row["wall_s"] else "-",
    ]


def evaluate(
    model: options.ModelArgument,
    placement: Annotated[Path, typer.Option(metavar="FILE", help="a placement.json")],
    devices: options.DevicesUnlessRecordOption = None,
    measure: Annotated[bool, typer.Option("--measure", help="execute it on the real devices")] = False,
    against: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="with --measure: another placement.json; which of the two is faster"),
    ] = None,
    force: options.ForceOption = False,
    dim: options.DimOption = None,
    dims_objective: options.DimsObjectiveOption = "worst",
    input: options.InputOption = None,
    custom_ops: options.CustomOpsOption = None,
    json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Evaluate one placement, or say which of two is faster."""
    from gnnplace.api import evaluate as run

    result = run(
        model, devices, placement, against=against, measure=measure, force=force, dims=options.parse_dims(dim),
        dims_objective=dims_objective, inputs=input, custom_ops=custom_ops or (),
    )  # fmt: skip
    warn(result["warnings"])
    if json:
        print_json(result)
    else:
        print_table(["figure", "value"], [[key, str(value)] for key, value in result.items() if key != "warnings"])
        if against is not None:
            print_answer(_verdict(str(placement), str(against), *result["difference_interval"]))
        hint(f"gnnplace place {_problem(model, devices)} searches for a better one")
    if not result["feasible"]:
        raise InfeasiblePlacement(
            f"{placement}: the placement does not fit or cannot run on {devices or 'the devices of the record'}"
        )


def _verdict(placement: str, other: str, low: float, high: float) -> str:
    if low <= 0 <= high:
        return f"no difference is certain: the time of {placement} is {low:+.1%} to {high:+.1%} from that of {other}"
    faster, slower = (placement, other) if high < 0 else (other, placement)
    return (
        f"{faster} is faster than {slower}: the time of {placement} is {low:+.1%} to {high:+.1%} from that of {other}"
    )

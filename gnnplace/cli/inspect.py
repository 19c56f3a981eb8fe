"""`gnnplace evaluate`, `compare`, `devices` and `planners`: they look and write nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gnnplace.cli.completion import device_sets
from gnnplace.cli.completion import planners as planner_names
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
    QuietOption,
    RayOption,
    SecondsOption,
    SeedOption,
    parse_dims,
)
from gnnplace.cli.output import hint, print_json, print_table, warn
from gnnplace.cli.progress import search_progress
from gnnplace.errors import GnnplaceError, InfeasiblePlacement
from gnnplace.units import format_bytes, format_s

if TYPE_CHECKING:
    from gnnplace.run_record import PlannerRow

__all__ = ["compare", "devices", "evaluate", "planners"]


def evaluate(
    model: ModelArgument,
    devices: DevicesOption,
    placement: Annotated[Path, typer.Option(metavar="FILE", help="a placement.json")],
    measure: Annotated[bool, typer.Option("--measure", help="execute it on the real devices")] = False,
    force: ForceOption = False,
    dim: DimOption = None,
    dims_objective: DimsObjectiveOption = "worst",
    custom_ops: CustomOpsOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """What a given placement costs."""
    from gnnplace.api import PlaceOptions
    from gnnplace.api import evaluate as run

    options = PlaceOptions(
        measure=measure, force=force, dims=parse_dims(dim), dims_objective=dims_objective,
        custom_ops=tuple(custom_ops or ()),
    )  # fmt: skip
    result = run(model, devices, placement, options)
    warn(result["warnings"])
    if json:
        print_json(result)
    else:
        figures = {key: value for key, value in result.items() if key != "warnings"}
        print_table(["figure", "value"], [[key, str(value)] for key, value in figures.items()])
        hint(f"gnnplace place {model} --devices {devices} searches for a better one")
    if not result["feasible"]:
        raise InfeasiblePlacement(f"{placement}: the placement does not fit or cannot run on {devices}")


def compare(
    model: ModelArgument,
    devices: DevicesOption,
    planners: Annotated[
        str,
        typer.Option(
            metavar="A,B",
            help="names with commas between them; see gnnplace planners",
            autocompletion=planner_names,
        ),
    ],
    objective: ObjectiveOption = "latency",
    evaluations: EvaluationsOption = None,
    seconds: SecondsOption = None,
    seed: SeedOption = 0,
    groups: GroupsOption = None,
    dim: DimOption = None,
    dims_objective: DimsObjectiveOption = "worst",
    ray: RayOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Several planners on the same problem with the same budget, simulated."""
    from gnnplace.api import PlaceOptions
    from gnnplace.api import compare as run

    names = [name.strip() for name in planners.split(",") if name.strip()]
    if not names:
        raise GnnplaceError("--planners is empty; name at least one, for example heft,annealing,gnn")
    if evaluations is None and seconds is None:
        evaluations = 2000
    with search_progress(evaluations, seconds) as on_progress:
        options = PlaceOptions(
            objective=objective, evaluations=evaluations, seconds=seconds, seed=seed, max_groups=groups,
            dims=parse_dims(dim), dims_objective=dims_objective, ray=ray, on_progress=on_progress,
            on_warning=lambda text: warn([text]),
        )  # fmt: skip
        rows = run(model, devices, names, options)
    if json:
        print_json({"model": model, "devices": devices, "rows": rows})
    else:
        print_table(
            ["planner", "step", "gap", "evaluations", "search", "fits", *(["host"] if ray else []), ""],
            [
                [
                    row["planner"],
                    "-" if row["makespan_s"] is None else format_s(row["makespan_s"]),
                    "-" if row["gap"] is None else f"{row['gap']:.1%}",
                    str(row["evaluations"]),
                    format_s(row["wall_s"]),
                    "yes" if row["feasible"] else "no",
                    *([row.get("host", "")] if ray else []),
                    row["error"] or "",
                ]
                for row in rows
            ],
            _fastest(rows),
        )
        hint(f"gnnplace place {model} --devices {devices} --planner NAME --out DIR keeps one of them")
    if not any(row["feasible"] for row in rows):
        raise InfeasiblePlacement(f"no planner found a placement of {model} that fits {devices}")


def _fastest(rows: Sequence[PlannerRow]) -> dict[int, str]:
    """Marks the row with the least seconds of those that fit."""
    steps = {number: row["makespan_s"] for number, row in enumerate(rows) if row["feasible"] and row["makespan_s"]}
    return {min(steps, key=steps.__getitem__): "green"} if steps else {}


def devices(
    spec: Annotated[
        str | None,
        typer.Argument(metavar="[SPEC]", help="a device set; none: this machine", autocompletion=device_sets),
    ] = None,
    ray: RayOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """The devices of a set, or of this machine, and the names of the presets; with --ray those of a cluster's hosts, and the links between them."""
    from gnnplace.api.problem_setup import topology_of
    from gnnplace.api.search import hosts_at
    from gnnplace.devices.json_format import topology_to_json
    from gnnplace.devices.presets import preset_names

    hosts = hosts_at(ray)
    topology = topology_of(spec or "auto") if hosts is None else hosts.topology(spec or "auto")
    if json:
        print_json({**topology_to_json(topology), "presets": list(preset_names())})
        return
    print_table(
        ["device", "kind", "memory", "float32", "bandwidth"],
        [
            [
                device.name,
                device.kind,
                "unlimited" if device.memory_bytes is None else format_bytes(device.memory_bytes),
                f"{device.peak_flops_per_s.get('float32', 0.0) / 1e12:.2f} TFLOP/s",
                f"{(device.memory_bandwidth_bytes_per_s or 0.0) / 1e9:.0f} GB/s",
            ]
            for device in topology.devices
        ],
    )
    if ray is not None:
        hint(f"gnnplace place MODEL --devices {','.join(topology.device_names[:2])} --ray {ray} --out placed")
    elif spec is None:
        print(f"presets, as NAMExN (k40x4): {', '.join(preset_names())}")
        hint(f"gnnplace place MODEL --devices {','.join(topology.device_names[:2])} --measure --out placed")


def planners(json: JsonOption = False, quiet: QuietOption = False) -> None:
    """The planners by name."""
    from gnnplace.planners.catalog import PLANNERS

    if json:
        print_json({name: {"kind": entry.kind, "description": entry.description} for name, entry in PLANNERS.items()})
    else:
        print_table(["planner", "what it does"], [[name, entry.description] for name, entry in PLANNERS.items()])
        hint("gnnplace compare MODEL --devices SPEC --planners heft,annealing,gnn")

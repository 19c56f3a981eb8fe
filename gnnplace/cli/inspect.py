"""`gnnplace devices`, `planners`, `zoo`, `records`, `report` and `doctor`: lists, models of the zoo, reports, and the installation."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from gnnplace.cli.completion import device_sets, recipes
from gnnplace.cli.options import JsonOption, QuietOption, RayOption, SeedOption, TraceOption
from gnnplace.cli.output import bar, hint, print_answer, print_json, print_table
from gnnplace.errors import GnnplaceError
from gnnplace.files import check_target
from gnnplace.installation import Check, checks
from gnnplace.report.pictures import PictureFormat
from gnnplace.units import format_bytes, format_count, format_s

_STYLES = {"ok": "", "missing": "yellow", "broken": "bold red"}


def devices(
    spec: Annotated[
        str | None,
        typer.Argument(metavar="[SPEC]", help="a device set; this machine if not given", autocompletion=device_sets),
    ] = None,
    ray: RayOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show the devices of a set or of this machine, and the presets; with --ray the devices of a cluster and the links between its hosts."""
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
    """List the planners."""
    from gnnplace.planners.catalog import PLANNERS

    if json:
        print_json({name: {"kind": entry.kind, "description": entry.description} for name, entry in PLANNERS.items()})
    else:
        print_table(["planner", "what it does"], [[name, entry.description] for name, entry in PLANNERS.items()])
        hint("gnnplace compare MODEL --devices SPEC --planners heft,annealing,gnn")


def records(json: JsonOption = False, quiet: QuietOption = False) -> None:
    """List the records: the best known placements of graphs on device sets, to compare with."""
    from models_zoo.records.names import record_names
    from models_zoo.records.record import load_record

    found = [load_record(name) for name in record_names()]
    if json:
        print_json(
            {
                each.name: {
                    "graph": each.graph,
                    "devices": each.devices,
                    "ops": each.ops,
                    "num_devices": each.num_devices,
                    "makespan_s": each.makespan_s,
                    "lower_bound_s": each.lower_bound_s,
                    "gap": each.gap,
                    "planner": each.found.planner,
                }
                for each in found
            }
        )
        return
    print_table(
        ["record", "ops", "devices", "step", "gap", "found by"],
        [
            [
                each.name,
                str(each.ops),
                str(each.num_devices),
                format_s(each.makespan_s),
                f"{each.gap:.1%}",
                each.found.planner,
            ]
            for each in found
        ],
    )
    hint("gnnplace compare record:NAME --planners heft,annealing,gnn")


def zoo(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="a recipe; lists all if not given", autocompletion=recipes)
    ] = None,
    training: Annotated[bool, typer.Option("--training", help="one training step instead of inference")] = False,
    small: Annotated[bool, typer.Option("--small", help="the variant for tests")] = False,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="SETTING=VALUE", help="change a setting; may be repeated")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="the .onnx file to build, or .json (.json.gz) for the op graph alone")
    ] = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """List the zoo, describe a recipe, or build its model."""
    from models_zoo.networks.zoo_name import zoo_name

    if name is None:
        if training or small or setting or out is not None:
            raise GnnplaceError("gnnplace zoo: name a recipe to build it; without a name it lists all")
        _print_recipes(json)
        return
    chosen = zoo_name(name, training=training, small=small, settings=setting or ())
    if out is None:
        facts = chosen.description()
        if json:
            print_json(facts)
        else:
            print_table(["", ""], [[key, str(value)] for key, value in facts.items()])
        return
    if out.suffix != ".onnx" and not out.name.endswith((".json", ".json.gz")):
        raise GnnplaceError(f"--out {out}: expected a name that ends in .onnx, .json or .json.gz")
    check_target(out)
    with bar(f"building {chosen.key}"):
        written = chosen.write(out, seed)
    if json:
        print_json({"model": f"zoo:{chosen.key}", "out": str(out), "files": [str(path) for path in written]})
        return
    print_table(["file", "size"], [[str(path), format_bytes(path.stat().st_size)] for path in written])
    hint(f"gnnplace place {out} --devices k40x2")


def _print_recipes(json: bool) -> None:
    from models_zoo.networks.shipped import LIGHT_MODELS, manifest

    rows = [{**vars(row), "key": row.key} for row in manifest()]
    if json:
        print_json({"recipes": rows, "light": [f"light_{name}" for name in LIGHT_MODELS]})
        return
    print_table(
        ["recipe", "family", "ops", "edges", "parameters", "FLOPs", "split"],
        [
            [
                row["key"], row["family"], str(row["ops"]), str(row["edges"]), format_count(row["parameters"]),
                format_count(row["flops"]), row["split"],
            ]
            for row in rows
        ],
    )  # fmt: skip
    print(f"as the onnx package ships them: {', '.join(f'light_{name}' for name in LIGHT_MODELS)}")
    hint("gnnplace place zoo:NAME --devices k40x2")


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR|RESULT", help="folder written by place, or the result of a bench")
    ],
    trace: TraceOption = None,
    pictures: Annotated[Path | None, typer.Option(help="folder for every picture of the report, for papers")] = None,
    picture_format: Annotated[PictureFormat, typer.Option("--format", help="format of the pictures")] = "svg",
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Draw report.html again from run.json, or the tables of a bench beside its result."""
    from gnnplace.report.bench_page import read_bench, write_bench_page
    from gnnplace.report.page import write_report
    from gnnplace.report.pictures import write_pictures
    from gnnplace.report.trace import write_trace
    from gnnplace.run_record import read_run

    for target, is_folder in ((trace, False), (pictures, True)):
        if target is not None:
            check_target(target, is_folder)
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


def doctor(json: JsonOption = False, quiet: QuietOption = False) -> None:
    """Check the installation and show how to repair it. Exit code 1 if a part that placing needs is broken."""
    found: list[Check] = []
    with bar("looking (compiles the first time)") as advance:
        for count, check in enumerate(checks(), start=1):
            found.append(check)
            advance(count / (count + 1), f"looked at {check.name}", "")
    broken = [check for check in found if check.state == "broken"]
    if json:
        print_json({"ok": not broken, "checks": [asdict(check) for check in found]})
    else:
        shown = [check for check in found if check.state != "ok" or not quiet]
        print_table(
            ["what", "", "found"],
            [[check.name, check.state, check.found + (f"\n-> {check.mend}" if check.mend else "")] for check in shown],
            {number: _STYLES[check.state] for number, check in enumerate(shown)},
        )
        missing = sum(check.state == "missing" for check in found)
        if broken:
            print_answer(f"{len(broken)} needed things are broken: {', '.join(check.name for check in broken)}")
            hint(broken[0].mend)
        else:
            print_answer(f"all that placing needs is there; {missing} optional things are missing")
            hint("gnnplace place MODEL --devices auto --measure --out placed")
    if broken:
        raise typer.Exit(1)

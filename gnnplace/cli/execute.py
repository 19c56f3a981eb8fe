"""`gnnplace run` and `gnnplace profile`: they execute on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from gnnplace.cli.options import (
    CustomOpsOption,
    DevicesOption,
    DimOption,
    ForceOption,
    JsonOption,
    ModelArgument,
    QuietOption,
    RayOption,
    SeedOption,
    parse_dims,
)
from gnnplace.cli.output import hint, print_answer, print_json, print_table, warn
from gnnplace.cli.progress import bar
from gnnplace.units import format_s

__all__ = ["made_up_inputs", "profile", "run"]


def run(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR|MODEL", help="what place wrote with --out, or its placed.onnx alone")
    ],
    input: Annotated[Path | None, typer.Option(metavar="X.npz", help="inputs by name; none: made-up ones")] = None,
    output: Annotated[Path | None, typer.Option(metavar="Y.npz", help="where the outputs go")] = None,
    repeat: Annotated[int, typer.Option(min=1, help="how often to run")] = 1,
    custom_ops: CustomOpsOption = None,
    ray: RayOption = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run a placed model on its devices; repeated, as often again with requests that follow each other without a pause.

    Devices such as host1/cpu:0 are on the hosts of a Ray cluster, which --ray names.
    """
    import numpy as np

    from gnnplace.measuring.timing import measured_period, median_interval
    from gnnplace.running.feed import read_arrays, write_arrays
    from gnnplace.running.session import Session

    if ray is None:
        opened: Callable[[], Session] = partial(Session, folder, custom_ops=custom_ops or ())
    else:
        from gnnplace.distributed.execution import DistributedSession

        opened = partial(DistributedSession, folder, ray, custom_ops=custom_ops or ())
    with bar("loading") as advance, opened() as session:
        feed = read_arrays(input) if input is not None else made_up_inputs(folder, seed)
        seconds = []
        for number in range(repeat):
            begin_s = time.perf_counter()
            outputs = session.run(None, feed)
            seconds.append(time.perf_counter() - begin_s)
            advance((number + 1) / repeat, "running", f"best {format_s(min(seconds))}")
        period = measured_period(session, feed, repeat) if repeat > 1 else None
        names = [info.name for info in session.get_outputs()]
        devices, max_in_flight = session.get_devices(), session.max_in_flight
    if output is not None:
        write_arrays(output, dict(zip(names, outputs, strict=True)))
    interval = median_interval(np.array(seconds))
    result: dict[str, Any] = {
        "devices": devices,
        "outputs": {
            name: {"shape": list(np.shape(value)), "dtype": str(np.asarray(value).dtype)}
            for name, value in zip(names, outputs, strict=True)
        },
        "median_s": interval.median,
        "spread_s": interval.spread,
        "repeats": repeat,
        "throughput_s": None if period is None else period.median,
        "throughput_spread_s": None if period is None else period.spread,
        "max_in_flight": max_in_flight,
        "output": None if output is None else str(output),
    }
    if json:
        print_json(result)
        return
    print_table(
        ["output", "shape", "dtype"],
        [[name, str(facts["shape"]), facts["dtype"]] for name, facts in result["outputs"].items()],
    )
    print_answer(
        f"{repeat} run(s) on {', '.join(devices)}: {format_s(interval.median)} +- {format_s(interval.spread)} (median)"
    )
    if period is not None:
        print_answer(
            f"pipelined, up to {max_in_flight} at once: {format_s(period.median)} +- {format_s(period.spread)} per request"
        )
    cluster = "" if ray is None else f" --ray {ray}"
    called = f"Session({str(folder)!r})" if ray is None else f"DistributedSession({str(folder)!r}, {ray!r})"
    hint(f"gnnplace run {folder}{cluster} --repeat 100" if repeat == 1 else f"in Python: gnnplace.{called}")


def profile(
    model: ModelArgument,
    devices: DevicesOption,
    out: Annotated[Path, typer.Option(metavar="costs.json", help="where the costs go")],
    dim: DimOption = None,
    custom_ops: CustomOpsOption = None,
    seed: SeedOption = 0,
    force: ForceOption = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Measure what each op of a model costs on real devices, fit the roofline to it, and probe the link between every two devices.

    Everything measured is kept for later commands on this machine; costs.json gets all that is known of these kinds of devices, and of
    the links between these devices.
    """
    from gnnplace.api import load_workload
    from gnnplace.api.measuring import executable, profiled_anew
    from gnnplace.api.problem_setup import topology_of
    from gnnplace.cost.measured import write_costs
    from gnnplace.measuring.busy import check_free

    topology = topology_of(devices)
    workload = load_workload(model, parse_dims(dim), custom_ops=custom_ops or (), to_run=True)
    onnx_model, *others = (executable(each) for each in (workload, *workload.others))
    warn([*workload.warnings, *check_free(topology.device_names, force)])
    with bar("running on every device, probing links"):
        for other in others:
            profiled_anew(other, topology, seed, pairs=())
        costs, fits = profiled_anew(onnx_model, topology, seed)
    known = costs.of_devices(topology.devices)
    write_costs(known, out)
    rows = {
        kind: {
            "ops": len(known.kinds[kind].op_s),
            "dispatch_overhead_s": known.kinds[kind].dispatch_overhead_s,
            "roofline_relative_error": fit.relative_error,
        }
        for kind, fit in fits.items()
    }
    if json:
        print_json({"out": str(out), "kinds": rows})
        return
    print_table(
        ["kind", "op signatures", "dispatch", "roofline error"],
        [
            [
                kind,
                str(row["ops"]),
                format_s(row["dispatch_overhead_s"] or 0.0),
                f"{row['roofline_relative_error']:.0%}",
            ]
            for kind, row in rows.items()
        ],
    )
    print_answer(f"costs: {out}")
    hint(f"gnnplace place {model} --devices {devices} --measure --out placed")


def made_up_inputs(folder: Path, seed: int) -> dict[str, Any]:
    """One array per input of the placed model in a folder, or in a file."""
    import numpy as np

    from gnnplace.onnx_io.read import read_onnx
    from gnnplace.onnx_io.sample_inputs import sample_inputs

    path = folder if folder.is_file() else folder / "placed.onnx"
    return dict(sample_inputs(read_onnx(path), np.random.default_rng(seed)))

"""`gnnplace run` and `gnnplace profile`: they execute on this machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

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

__all__ = ["profile", "run"]


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
    from gnnplace.cli.run_placed import OUTPUT_COLUMNS, answer_lines, feed_for, output_rows, run_placed
    from gnnplace.running.session import Session

    if ray is None:
        opened: Callable[[], Session] = partial(Session, folder, custom_ops=custom_ops or ())
    else:
        from gnnplace import DistributedSession

        opened = partial(DistributedSession, folder, ray, custom_ops=custom_ops or ())
    with bar("loading") as advance, opened() as session:
        feed = feed_for(folder, input, seed)
        result = run_placed(
            session,
            feed,
            output,
            repeat,
            lambda number, best_s: advance(number / repeat, "running", f"best {format_s(best_s)}"),
        )
    if json:
        print_json(result)
        return
    print_table(OUTPUT_COLUMNS, output_rows(result))
    for line in answer_lines(result):
        print_answer(line)
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
    from gnnplace.api import profile as run

    with bar("running on every device, probing links"):
        result = run(
            model, devices, out, dims=parse_dims(dim), custom_ops=custom_ops or (), seed=seed, force=force,
            on_warning=lambda text: warn([text]),
        )  # fmt: skip
    if json:
        print_json(result)
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
            for kind, row in result["kinds"].items()
        ],
    )
    print_answer(f"costs: {out}")
    hint(f"gnnplace place {model} --devices {devices} --measure --out placed")

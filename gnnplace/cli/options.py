"""Arguments that several commands share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from gnnplace.cli import completion
from gnnplace.cli.output import be_quiet
from gnnplace.errors import GnnplaceError
from gnnplace.objectives import DimsObjective, Objective

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="an .onnx file, an op-graph .json, zoo:NAME, or record:NAME",
        autocompletion=completion.models,
    ),
]
PlannerOption = Annotated[
    str, typer.Option(metavar="NAME", help="see gnnplace planners", autocompletion=completion.planners)
]
DevicesOption = Annotated[
    str,
    typer.Option(
        "--devices",
        metavar="SPEC",
        help="a topology .json, a preset (k40x4), real devices (cpu:0,cuda:0), or auto",
        autocompletion=completion.device_sets,
    ),
]
DevicesUnlessRecordOption = Annotated[
    str | None,
    typer.Option(
        "--devices",
        metavar="SPEC",
        help="a topology .json, a preset (k40x4), real devices (cpu:0,cuda:0), or auto; a record has its own",
        autocompletion=completion.device_sets,
    ),
]
DimOption = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        metavar="NAME=N",
        help="size of a symbolic dimension, several (4,8,16) or a range (1:64); may be repeated",
    ),
]
InputDimOption = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        metavar="NAME=N",
        help="size of a symbolic dimension of random inputs, else the one that the model was placed for; may be repeated",
    ),
]
InputOption = Annotated[
    Path | None,
    typer.Option(
        "--input",
        metavar="X.npz",
        help="inputs by name to measure with, random ones if not given; they state the sizes of symbolic dimensions",
    ),
]
DimsObjectiveOption = Annotated[DimsObjective, typer.Option(help="time to minimise when a dimension has several sizes")]
CustomOpsOption = Annotated[
    list[Path] | None,
    typer.Option("--custom-ops", metavar="LIBRARY", help="a shared library with operators of its own; may be repeated"),
]
EvaluationsOption = Annotated[int | None, typer.Option(min=1, help="placements that a planner may evaluate")]
SecondsOption = Annotated[
    float | None, typer.Option(min=0.0, help="seconds that a planner may search, without those of compilation")
]
ForceOption = Annotated[bool, typer.Option("--force", help="measure even if other programs keep a device busy")]
RayOption = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="work on a Ray cluster: HOST:PORT of its head node; auto (the cluster that runs here, else this machine alone); or local",
    ),
]
PolicyOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE",
        help="policy of gnn: shipped, prior, uniform, or the file of a trained one; shipped if not given",
        autocompletion=completion.policies,
    ),
]
SeedOption = Annotated[int, typer.Option(min=0, help="same seed, same answer")]
GroupsOption = Annotated[
    int | None, typer.Option("--groups", min=1, help="largest number of op groups that planners decide on")
]
ObjectiveOption = Annotated[Objective, typer.Option(help="latency of one step, or throughput of pipelined steps")]
JsonOption = Annotated[bool, typer.Option("--json", help="one JSON object on stdout")]
TraceOption = Annotated[
    Path | None, typer.Option(help="file for the simulated schedule, which ui.perfetto.dev and chrome://tracing open")
]
QuietOption = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="the answer and warnings, without progress, notes and hints", callback=be_quiet),
]


def parse_dims(texts: Sequence[str] | None) -> dict[str, int | tuple[int, ...]]:
    """Sizes by dimension from `NAME=N`, `NAME=A,B,C` and `NAME=LOW:HIGH`; a range stands for `sizes_between` its ends.

    >>> parse_dims(["batch=4", "sequence=16,64", "past=1:64"])
    {'batch': 4, 'sequence': (16, 64), 'past': (1, 8, 64)}

    Raises:
        GnnplaceError: a text of another form, or a range that is empty.
    """
    from gnnplace.api.options import sizes_between

    dims: dict[str, int | tuple[int, ...]] = {}
    for text in texts or ():
        name, _, value = text.rpartition("=")
        low, colon, high = value.partition(":")
        sizes = [low, high] if colon else value.split(",")
        if not name or not all(size.isdecimal() for size in sizes):
            raise GnnplaceError(
                f"--dim {text!r}: expected NAME=N with a whole number, for example batch=4, or NAME=4,8,16 or NAME=LOW:HIGH"
            )
        if colon and int(low) > int(high):
            raise GnnplaceError(f"--dim {text!r}: the range is empty; write the smaller size first")
        if name in dims:
            raise GnnplaceError(f"--dim {text!r}: {name} has sizes already; write them together, as {name}=4,8,16")
        numbers = tuple(map(int, sizes))
        dims[name] = sizes_between(*numbers) if colon else numbers if len(numbers) > 1 else numbers[0]
    return dims

"""Arguments that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from gnnplace.errors import GnnplaceError
from gnnplace.evaluation import Objective

__all__ = [
    "DevicesOption",
    "DimOption",
    "EvaluationsOption",
    "ForceOption",
    "GroupsOption",
    "JsonOption",
    "ModelArgument",
    "ObjectiveOption",
    "SecondsOption",
    "SeedOption",
    "parse_dims",
]

ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="an .onnx file, an op-graph .json, or zoo:NAME")]
DevicesOption = Annotated[
    str,
    typer.Option(
        "--devices", metavar="SPEC", help="a topology .json, a preset (k40x4), real devices (cpu:0,cuda:0), or auto"
    ),
]
DimOption = Annotated[
    list[str] | None, typer.Option("--dim", metavar="NAME=N", help="value of a symbolic dimension; may be repeated")
]
EvaluationsOption = Annotated[int | None, typer.Option(min=1, help="placements that a planner may evaluate")]
SecondsOption = Annotated[float | None, typer.Option(min=0.0, help="seconds that a planner may search")]
ForceOption = Annotated[bool, typer.Option("--force", help="measure even where other work keeps a device busy")]
SeedOption = Annotated[int, typer.Option(min=0, help="same seed, same answer")]
GroupsOption = Annotated[int | None, typer.Option("--groups", min=1, help="op groups to decide on at most")]
ObjectiveOption = Annotated[Objective, typer.Option(help="latency of one step, or throughput of pipelined steps")]
JsonOption = Annotated[bool, typer.Option("--json", help="one JSON object on stdout")]


def parse_dims(texts: Sequence[str] | None) -> dict[str, int]:
    """`NAME=N` texts as a dictionary.

    >>> parse_dims(["batch=4"])
    {'batch': 4}

    Raises:
        GnnplaceError: a text of another form.
    """
    dims: dict[str, int] = {}
    for text in texts or ():
        name, equals, value = text.rpartition("=")
        if not equals or not name or not value.isdecimal():
            raise GnnplaceError(f"--dim {text!r}: expected NAME=N with a whole number, for example batch=4")
        dims[name] = int(value)
    return dims

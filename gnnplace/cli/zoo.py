"""`gnnplace zoo`: the workloads that come with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gnnplace.cli.completion import recipes
from gnnplace.cli.options import JsonOption, QuietOption, SeedOption
from gnnplace.cli.output import hint, print_json, print_table
from gnnplace.cli.progress import bar
from gnnplace.errors import GnnplaceError
from gnnplace.units import format_bytes, format_count

__all__ = ["zoo"]


def zoo(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="a recipe; none: list all", autocompletion=recipes)
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
        _list(json)
        return
    chosen = zoo_name(name, training=training, small=small, settings=setting or ())
    if out is None:
        _describe(chosen.description(), json)
        return
    if out.suffix != ".onnx" and not out.name.endswith((".json", ".json.gz")):
        raise GnnplaceError(f"--out {out}: expected a name that ends in .onnx, .json or .json.gz")
    with bar(f"building {chosen.key}"):
        written = chosen.write(out, seed)
    document = {"model": f"zoo:{chosen.key}", "out": str(out), "files": [str(path) for path in written]}
    if json:
        print_json(document)
        return
    sizes = [[str(path), format_bytes(path.stat().st_size)] for path in written]
    print_table(["file", "size"], sizes)
    hint(f"gnnplace place {out} --devices k40x2")


def _list(json: bool) -> None:
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


def _describe(facts: dict[str, Any], json: bool) -> None:
    if json:
        print_json(facts)
    else:
        print_table(["", ""], [[key, str(value)] for key, value in facts.items()])

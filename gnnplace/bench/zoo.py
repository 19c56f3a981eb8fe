"""`gnnplace bench zoo`: every recipe is built, compared with torch, read, cut over two devices at random, and run."""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnplace.bench.harness import BenchOptions, BenchResult, Result, run_cases
from gnnplace.errors import GnnplaceError, UnsupportedModel
from gnnplace.files import temporary_folder
from gnnplace.measuring.plain_session import PlainSession
from gnnplace.onnx_io.manifest import write_parts
from gnnplace.onnx_io.read import read_onnx
from gnnplace.onnx_io.segments import segments
from gnnplace.placement import scattered
from gnnplace.running.session import PARTS, Session
from gnnplace.units import format_s

if TYPE_CHECKING:
    from models_zoo.networks.recipe import Recipe

_DEVICES = ("cpu:0", "cpu:1")
_EQUAL = 1e-4


@dataclass(frozen=True)
class Case:
    """The small variant of a recipe, for inference or training."""

    family: str
    name: str
    training: bool
    seed: int


def bench_zoo(options: BenchOptions) -> BenchResult:
    """A row per small variant of a recipe, for inference and training; a recipe that fails has an `error` and no figures."""
    from models_zoo.networks.catalog import FAMILIES, GENERATED, recipes_of

    cases = [
        Case(family, recipe.name, training, options.seed)
        for family in FAMILIES
        if family not in GENERATED
        for recipe in recipes_of(family).values()
        for training in (False, True)[: 1 + recipe.trains]
    ]
    rows = list(run_cases(cases, _row, options, _progress).values())
    built = [row for row in rows if "error" not in row]
    summary = {
        "recipes": len({row["name"] for row in rows}),
        "families": len({row["family"] for row in rows}),
        "passed": len(built),
        "failed": len(rows) - len(built),
        "build_s": sum(row["build_s"] for row in built),
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
        "worst_torch_error": max((row["torch_error"] for row in built), default=None),
        "worst_placed_error": max((row["placed_error"] for row in built), default=None),
    }
    columns = ("name", "training", "ops", "segments", "build_s", "torch_error", "placed_error")
    return BenchResult("zoo", options, rows, summary, columns=columns)


def _progress(case: Case, row: Result) -> str:
    outcome = row.get("error") or f"{row['ops']:,} ops, built in {format_s(row['build_s'])}"
    return f"{case.name}{', training step' * case.training}: {outcome}"


def _row(case: Case) -> dict[str, Any]:
    from models_zoo.networks.catalog import recipes_of

    with temporary_folder() as folder:
        try:
            found = try_recipe(recipes_of(case.family)[case.name], case.training, folder, case.seed)
        except GnnplaceError as error:
            found = {"name": case.name, "training": case.training, "error": str(error)}
    return {"family": case.family, **found}


def try_recipe(recipe: Recipe, training: bool, folder: Path, seed: int = 0) -> dict[str, Any]:
    """Sizes, build seconds and output differences of a recipe's small variant.

    Colocation groups go to random devices, the parts run, and their outputs are compared with those of one plain session.

    Raises:
        UnsupportedModel: the recipe fails on the way, or the outputs of the parts differ.
    """
    from models_zoo.networks.build import build_onnx
    from models_zoo.networks.export.comparison import relative_error

    started = time.perf_counter()
    built = build_onnx(recipe, recipe.small, training, folder / f"{recipe.name}.onnx", seed)
    build_s = time.perf_counter() - started
    model = read_onnx(built.path)
    graph = model.graph
    assignment = scattered(graph, len(_DEVICES), np.random.default_rng(seed))
    parts = segments(graph, assignment, graph.topological_order, model.constant_ops)
    write_parts(model, parts, _DEVICES, folder / "placed" / PARTS)
    feed = dict(built.case.inputs)
    with PlainSession(built.path, "cpu:0") as plain:
        expected = plain.run(feed)
    with Session(folder / "placed") as session:
        names = [value.name for value in session.get_outputs()]
        found = session.run(None, {value.name: feed[value.name] for value in session.get_inputs()})
    errors = {name: relative_error(a, b) for name, a, b in zip(names, found, expected, strict=True)}
    worst = max(errors, key=errors.__getitem__)
    if not errors[worst] <= _EQUAL:
        raise UnsupportedModel(
            f"zoo:{recipe.name}: output {worst!r} of the parts differs from one session's by {errors[worst]:.1e}"
        )
    return {
        "name": recipe.name,
        "training": training,
        "ops": graph.num_ops,
        "segments": len(parts),
        "build_s": build_s,
        "torch_outputs": built.comparison.outputs,
        "torch_error": built.comparison.relative_error,
        "placed_error": errors[worst],
        "warnings": list(model.warnings),
    }

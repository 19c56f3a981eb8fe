"""Builds every recipe at its published size, and writes the manifest and the op graphs that ship.

    python -m models_zoo.networks.publish --out notebooks/results/zoo.json
    python -m models_zoo.networks.publish --out notebooks/results/zoo.json --families bert,gpt2 --jobs 1

A row is compared with torch and kept only if the numbers agree. Rows are built in processes of their own, a few small
ones in each, so that one that runs out of memory takes little with it. Rows that are in the manifest already are built
anew only when their family is named.
"""

import argparse
import fcntl
import hashlib
import itertools
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from gnnplace.devices.detect import cpu_model
from gnnplace.errors import GnnplaceError
from gnnplace.files import temporary_folder, write_text
from gnnplace.graph.json_format import graph_to_json
from gnnplace.graph.op_graph import OpGraph
from gnnplace.versions import installed_versions
from models_zoo.networks.catalog import FAMILIES, GENERATED, recipes_of
from models_zoo.networks.shipped import ManifestRow, manifest, write_manifest, write_structure

MAX_GENERATED_OPS = 5_000
"""Larger generated graphs are made on demand, in seconds."""
CHUNK = 8
_LOCK = Path(tempfile.gettempdir()) / "gnnplace-zoo.lock"
_Row = tuple[str, str, bool]
"""Family, recipe, training."""
_VERSIONED = ("onnx", "onnx-ir", "onnxruntime", "onnxscript", "torch", "transformers")


def publish_row(family: str, name: str, training: bool) -> tuple[ManifestRow, dict[str, Any]]:
    """Builds one row and writes its op graph; the row, and what building took.

    Raises:
        GnnplaceError: the recipe cannot be built, or computes something else than torch.
    """
    began = time.perf_counter()
    recipe = recipes_of(family)[name]
    settings = recipe.at()
    about = {
        "name": name, "training": training, "family": family, "split": FAMILIES[family].split,
        "summary": recipe.summary, "source": recipe.source, "settings": vars(settings),
    }  # fmt: skip
    if family in GENERATED:
        graph = recipe.build(settings)
        assert isinstance(graph, OpGraph)
        text = json.dumps(graph_to_json(graph), sort_keys=True)
        compared: dict[str, Any] = {
            "opset": None, "torch_outputs": None, "torch_error": None, "torch_noise": None,
            "content_sha256": hashlib.sha256(text.encode()).hexdigest(), "parameters": 0,
        }  # fmt: skip
    else:
        graph, compared = _from_onnx(family, name, training)
    row = ManifestRow(
        **about,
        **compared,
        ops=graph.num_ops,
        edges=len(graph.edges[0]),
        parameter_bytes=graph.total_weight_bytes,
        flops=float(graph.flops.sum()),
    )
    if family not in GENERATED or graph.num_ops <= MAX_GENERATED_OPS:
        write_structure(row.key, graph)
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return row, {"name": row.key, "wall_s": time.perf_counter() - began, "peak_memory_bytes": peak_bytes}


def _from_onnx(family: str, name: str, training: bool) -> tuple[OpGraph, dict[str, Any]]:
    """The op graph of the model as it is read back, and what the comparison gave."""
    import torch

    from gnnplace.onnx_io.read import read_onnx
    from models_zoo.networks.build import build_onnx

    torch.set_num_threads(1)  # several rows are built at a time
    recipe = recipes_of(family)[name]
    with temporary_folder() as folder:
        built = build_onnx(recipe, recipe.at(), training, folder / f"{name}.onnx")
        model = read_onnx(built.path)
        return model.graph, {
            "parameters": built.parameters,
            "opset": model.model.opset_imports.get(""),
            "content_sha256": built.content_sha256,
            "torch_outputs": built.comparison.outputs,
            "torch_error": built.comparison.relative_error,
            "torch_noise": built.comparison.torch_noise,
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Publishes recipes; returns the exit code, 1 if a row failed."""
    parser = argparse.ArgumentParser(prog="python -m models_zoo.networks.publish", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=Path, default=Path("notebooks/results/zoo.json"), help="file for seconds and memory of each build"
    )
    parser.add_argument("--families", default="", help="names with commas between them (default: what is missing)")
    parser.add_argument("--jobs", type=int, default=2, help="rows that are built at the same time (default: 2)")
    parser.add_argument("--rows", type=json.loads, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.rows:
        return _publish_rows(chosen.rows)
    named = [name for name in chosen.families.split(",") if name]
    unknown = [name for name in named if name not in FAMILIES]
    if unknown:
        print(f"error: there is no family {unknown[0]!r}; known are {', '.join(FAMILIES)}", file=sys.stderr)
        return 2
    done = {row.key for row in manifest() if row.family not in named}
    wanted = [
        (family, recipe.name, training)
        for family in named or FAMILIES
        for training in (False, True)
        for recipe in recipes_of(family).values()
        if (recipe.trains or not training) and _key(recipe.name, training) not in done
    ]
    with ThreadPoolExecutor(chosen.jobs) as pool:
        built = set(itertools.chain(*pool.map(partial(_in_a_process, out=chosen.out), _chunks(wanted))))
    failed = [_key(name, training) for _, name, training in wanted if _key(name, training) not in built]
    if failed:
        print(f"error: not built: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _chunks(rows: Sequence[_Row]) -> list[list[_Row]]:
    """Rows that one process builds: up to `CHUNK` of a family with many recipes, else one."""
    chunks: list[list[_Row]] = []
    for family, group in itertools.groupby(rows, key=lambda row: row[0]):
        size = CHUNK if len(recipes_of(family)) > CHUNK else 1
        members = list(group)
        chunks += [members[start : start + size] for start in range(0, len(members), size)]
    return chunks


def _in_a_process(rows: Sequence[_Row], out: Path) -> list[str]:
    """The keys of the rows that a new process built; each is saved immediately; failures are printed to stderr."""
    command = [sys.executable, "-m", "models_zoo.networks.publish", "--rows", json.dumps(rows)]
    built = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.startswith("{"):
                continue
            found = json.loads(line)
            row, cost = ManifestRow(**found["row"]), found["cost"]
            _save(row, cost, out)
            built.append(row.key)
            print(
                f"{row.key}: {row.ops} ops, {cost['wall_s']:.0f} s, {cost['peak_memory_bytes'] / 2**30:.1f} GiB, "
                f"error {row.torch_error}", file=sys.stderr, flush=True,
            )  # fmt: skip
    if process.returncode < 0:
        print(f"{rows[0][1]} and what follows: ended by signal {-process.returncode}", file=sys.stderr, flush=True)
    return built


def _publish_rows(rows: Sequence[_Row]) -> int:
    """Builds rows one after the other; a JSON line on stdout for each that was built."""
    for family, name, training in rows:
        try:
            row, cost = publish_row(family, name, training)
        except (GnnplaceError, RuntimeError, ValueError, TypeError) as problem:
            print(f"{_key(name, training)}: FAILED: {problem}", file=sys.stderr, flush=True)
            continue
        print(json.dumps({"row": asdict(row), "cost": cost}), flush=True)
    return 0


def _key(name: str, training: bool) -> str:
    return f"{name}:training" if training else name


def _save(row: ManifestRow, cost: dict[str, Any], out: Path) -> None:
    """Adds a row to the manifest and to what building took; several of these programs may run at the same time."""
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        manifest.cache_clear()
        rows = {known.key: known for known in manifest()} | {row.key: row}
        spent = _spent(out) | {row.key: cost}
        _write(rows, spent, out)


def _write(rows: dict[str, ManifestRow], spent: dict[str, dict[str, Any]], out: Path) -> None:
    order = {family: number for number, family in enumerate(FAMILIES)}
    kept = sorted(
        (row for row in rows.values() if row.family in order),
        key=lambda row: (order[row.family], row.name, row.training),
    )
    versions = installed_versions(*_VERSIONED)
    write_manifest(kept, versions)
    keys = [row.key for row in kept if row.key in spent]
    document = {
        "format": "gnnplace.bench/1",
        "suite": "zoo",
        "command": "python -m models_zoo.networks.publish --out notebooks/results/zoo.json",
        "seed": 0,
        "versions": versions,
        "machine": {"cpu": cpu_model(), "cores": len(os.sched_getaffinity(0)), "python": platform.python_version()},
        "summary": {
            "rows": len(keys),
            "wall_s": sum(spent[key]["wall_s"] for key in keys),
            "peak_memory_bytes": max((spent[key]["peak_memory_bytes"] for key in keys), default=0),
        },
        "rows": [{**spent[row.key], "ops": row.ops} for row in kept if row.key in spent],
    }
    write_text(out, json.dumps(document, indent=1) + "\n")


def _spent(path: Path) -> dict[str, dict[str, Any]]:
    """Time and memory of earlier builds, by row."""
    if not path.exists():
        return {}
    return {row["name"]: row for row in json.loads(path.read_text(encoding="utf-8"))["rows"]}


if __name__ == "__main__":
    sys.exit(main())

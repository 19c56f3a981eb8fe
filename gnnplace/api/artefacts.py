"""What a plan writes: a folder that is complete or absent."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from gnnplace.files import write_text
from gnnplace.onnx_io.annotate import write_placed
from gnnplace.onnx_io.manifest import write_parts
from gnnplace.onnx_io.segments import segment_numbers
from gnnplace.placement import save_placement
from gnnplace.report.page import write_report

if TYPE_CHECKING:
    from gnnplace.api.plan import Plan

__all__ = ["write_artefacts"]


def write_artefacts(plan: Plan, out: Path) -> None:
    """Writes everything to a folder beside `out`, which then takes its place; files of others in `out` are kept."""
    out.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
    try:
        _write(plan, scratch, out)
        out.mkdir(exist_ok=True)
        # run.json goes last: while it is absent, the folder is not whole.
        (out / "run.json").unlink(missing_ok=True)
        for fresh in sorted(scratch.iterdir(), key=lambda path: path.name == "run.json"):
            target = out / fresh.name
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target)
            fresh.replace(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _write(plan: Plan, folder: Path, out: Path) -> None:
    setting = plan.setting
    graph, topology, assignment = setting.workload.graph, setting.topology, plan.placement.assignment
    save_placement(folder / "placement.json", graph, topology, plan.placement, plan.facts())
    model = setting.workload.onnx
    if model is not None:
        found = plan.segments
        write_placed(model, topology, assignment, segment_numbers(found, graph.num_ops), folder / "placed.onnx")
        write_parts(model, found, topology.device_names, folder / "parts")
    record = plan.record(out)
    write_report(record, folder)
    write_text(folder / "run.json", json.dumps(record) + "\n")

"""What a plan writes: a folder that is complete or absent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from gnnplace.files import new_folder, write_text
from gnnplace.onnx_io.annotate import write_placed
from gnnplace.onnx_io.manifest import write_parts
from gnnplace.onnx_io.segments import segment_numbers
from gnnplace.placement import save_placement
from gnnplace.report.page import write_report

if TYPE_CHECKING:
    from gnnplace.api.plan import Plan

__all__ = ["write_artefacts"]


def write_artefacts(plan: Plan, out: Path) -> None:
    """Writes everything to a new folder, which becomes `out`; files of others in `out` are kept."""
    with new_folder(out, last="run.json", keeps_others=True) as fresh:
        _write(plan, fresh, out)


def _write(plan: Plan, folder: Path, out: Path) -> None:
    setting = plan.setup
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

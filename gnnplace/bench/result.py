"""What a suite stores: figures with the command, seed, versions and machine that made them."""

from __future__ import annotations

import json
import os
import platform
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnnplace.devices.detect import cpu_model
from gnnplace.files import write_text
from gnnplace.report.bench_format import FORMAT
from gnnplace.versions import installed_versions

__all__ = ["BenchResult", "library_versions", "write_result"]

_VERSIONED = ("gnnplace", "numpy", "numba", "onnx", "onnxruntime", "torch", "dgl", "pymetis", "mtkahypar", "ortools")


@dataclass(frozen=True)
class BenchResult:
    """A table and what it says."""

    suite: str
    rows: Sequence[Mapping[str, Any]]
    summary: Mapping[str, Any]
    seed: int
    arguments: tuple[str, ...] = ()
    """Of the command, besides the seed."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What tables and pictures need besides the rows."""
    columns: tuple[str, ...] = ()
    """Those of the rows that a terminal has room for; all of them for none."""
    program: tuple[str, ...] = ()
    """The command that runs the suite; `gnnplace bench SUITE` if empty."""

    def document(self) -> dict[str, Any]:
        """Everything that is needed to make it again."""
        return {
            "format": FORMAT,
            "suite": self.suite,
            "command": shlex.join((*(self.program or ("gnnplace", "bench", self.suite)), "--seed", str(self.seed), *self.arguments)),
            "seed": self.seed,
            "versions": library_versions(),
            "machine": {
                "cpu": cpu_model(), "cores": len(os.sched_getaffinity(0)), "python": platform.python_version(),
            },
            "summary": dict(self.summary),
            "rows": [dict(row) for row in self.rows],
            **({"details": dict(self.details)} if self.details else {}),
        }  # fmt: skip


def library_versions() -> dict[str, str]:
    """Of what takes part in the figures, by name; extras where they are installed."""
    return installed_versions(*_VERSIONED)


def write_result(result: BenchResult, path: Path) -> None:
    """Writes the result as JSON."""
    write_text(path, json.dumps(result.document(), indent=1, allow_nan=False) + "\n")

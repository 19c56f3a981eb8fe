"""Files of finished cases, as benches keep them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnnplace.bench.harness import library_versions


def write_cases(path: Path, found: Mapping[Any, Any], versions: Mapping[str, str] | None = None) -> Path:
    """Writes results by case as a bench with these library versions would; returns the path."""
    entries = [
        {"case": vars(case), "versions": versions or library_versions(), "result": result}
        for case, result in found.items()
    ]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    return path

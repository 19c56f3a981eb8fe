"""What training reports: a JSON object per update, one a line, and TensorBoard's event files where it is installed."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from gnnplace.files import write_text

__all__ = ["MetricsLog", "read_metrics"]


class MetricsLog:
    """An open log. Lines of updates that will be done again are dropped, a line that a kill cut off among them."""

    def __init__(self, path: Path, first_update: int) -> None:
        """Goes on at `first_update` in the file `path`; events are in the folder `tensorboard` beside it."""
        kept = [row for row in read_metrics(path) if row["update"] < first_update]
        write_text(path, "".join(json.dumps(row) + "\n" for row in kept))
        self._file = path.open("a", encoding="utf-8")
        self._events: Any = None
        if importlib.util.find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._events = SummaryWriter(str(path.parent / "tensorboard"), purge_step=first_update)

    def write(self, row: Mapping[str, Any]) -> None:
        """Appends what update `row["update"]` did; its numbers become TensorBoard's scalars."""
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
        if self._events is not None:
            for name, value in row.items():
                if isinstance(value, float | int) and name != "update":
                    self._events.add_scalar(name, value, row["update"])

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if self._events is not None:
            self._events.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a log, in order; none where there is no file. A line that was cut off is left out."""
    rows: list[dict[str, Any]] = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            with suppress(json.JSONDecodeError):
                rows.append(json.loads(line))
    return rows

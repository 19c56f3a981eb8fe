"""What training reports: a JSON object per update, one a line, and TensorBoard's event files where it is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from gnnplace.errors import GnnplaceError
from gnnplace.files import append_json_line, read_json_lines, write_json_lines

__all__ = ["MetricsLog", "read_metrics"]


class MetricsLog:
    """An open log. Lines of updates that will be done again are dropped, a line that a kill cut off among them."""

    def __init__(self, path: Path, first_update: int) -> None:
        """Goes on at `first_update` in the file `path`; events are in the folder `tensorboard` beside it."""
        write_json_lines(path, (row for row in read_metrics(path) if row["update"] < first_update))
        self._path = path
        self._events: Any = None
        if importlib.util.find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._events = SummaryWriter(str(path.parent / "tensorboard"), purge_step=first_update)

    def write(self, row: Mapping[str, Any]) -> None:
        """Appends what update `row["update"]` did; its numbers become TensorBoard's scalars."""
        append_json_line(self._path, row)
        if self._events is not None:
            for name, value in row.items():
                if isinstance(value, float | int) and name != "update":
                    self._events.add_scalar(name, value, row["update"])

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._events is not None:
            self._events.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a log, in order; none where there is no file. A last line that was cut off is left out.

    Raises:
        GnnplaceError: another line is no JSON.
    """
    return read_json_lines(path, GnnplaceError)

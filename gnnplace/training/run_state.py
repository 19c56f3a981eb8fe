"""What training reports: a JSON object per update, one a line, and TensorBoard's event files where it is installed."""

from __future__ import annotations

import dataclasses
import importlib.util
import io
import pickle
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from gnnplace.errors import GnnplaceError, shown
from gnnplace.files import append_json_line, new_file, read_json_lines, write_json_lines
from gnnplace.policy.checkpoint import InvalidPolicy, checked_config, restored_network
from gnnplace.policy.network import PolicyNetwork
from gnnplace.training.search_ppo import ppo_optimizer

__all__ = ["InvalidRun", "MetricsLog", "RunState", "fresh_state", "read_metrics", "read_state", "write_state"]


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


_FORMAT = "gnnplace.training/1"


class InvalidRun(GnnplaceError):
    """A folder holds no training run that can go on, or one that must not be overwritten."""


@dataclass(eq=False)
class RunState:
    """Changes with every update. All chance follows from seed, update and process, so no generator is kept."""

    network: PolicyNetwork
    optimizer: torch.optim.Optimizer
    update: int = 0
    """Updates that are done."""
    wall_s: float = 0.0
    """Seconds that they took, over all times the run was started."""
    settings: str = ""
    """What the run was started with, as whoever started it wrote it."""


def fresh_state(network: PolicyNetwork, settings: str) -> RunState:
    """The state before the first update; each update sets the learning rate."""
    return RunState(network, ppo_optimizer(network, learning_rate=0.0), settings=settings)


def write_state(path: Path, state: RunState) -> None:
    """Writes the file at once: a kill at any moment leaves the old one or the new one."""
    document = {
        "format": _FORMAT,
        "policy": dataclasses.asdict(state.network.config),
        "network": state.network.state_dict(),
        "optimizer": state.optimizer.state_dict(),
        "update": state.update,
        "wall_s": state.wall_s,
        "settings": state.settings,
    }
    buffer = io.BytesIO()  # on a full disk torch's own writing raises what is no OSError
    torch.save(document, buffer)
    with new_file(path) as temporary:
        temporary.write_bytes(buffer.getbuffer())


def read_state(path: Path) -> RunState:
    """What `write_state` wrote.

    Raises:
        InvalidRun: the file is missing or is no state of a run.
    """
    try:
        with warnings.catch_warnings(action="ignore"):  # of other versions of the format, which are refused or read
            document: dict[str, Any] = torch.load(path, weights_only=True)  # tensors and plain values, no objects
        if document["format"] != _FORMAT:
            raise InvalidRun(f"{path}: the format is {shown(document['format'])}; expected {_FORMAT!r}")
        network = restored_network(checked_config(document["policy"], str(path)), document["network"], str(path))
        optimizer = ppo_optimizer(network, learning_rate=0.0)  # that of the state comes back with it
        optimizer.load_state_dict(document["optimizer"])
        return RunState(network, optimizer, document["update"], document["wall_s"], document["settings"])
    except OSError as error:
        raise InvalidRun(f"{path}: cannot be read ({error.strerror}); is this the folder of a training run?") from None
    except InvalidPolicy as error:
        raise InvalidRun(str(error)) from None
    except (
        LookupError,
        AttributeError,
        TypeError,
        ValueError,
        RuntimeError,
        EOFError,
        pickle.UnpicklingError,
    ) as error:
        raise InvalidRun(f"{path}: is no state of a training run of this version ({error})") from None

"""Files of a training run: its checkpoint, and its log of one JSON object per update (with TensorBoard's events where installed)."""

import dataclasses
import importlib.util
import io
import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gnnplace.errors import GnnplaceError, shown
from gnnplace.files import append_json_line, new_file, read_json_lines, write_json_lines
from gnnplace.json_fields import JsonObject, json_object
from gnnplace.policy.checkpoint import InvalidPolicy, checked_config, restored_network
from gnnplace.policy.network import PolicyNetwork
from gnnplace.training.search_ppo import ppo_optimizer

_FORMAT = "gnnplace.training/1"
_DAMAGED = LookupError, AttributeError, TypeError, ValueError, RuntimeError, EOFError, pickle.UnpicklingError


@contextmanager
def metrics_log(path: Path, first_update: int) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A function that appends the row of update `row["update"]` to the log `path`.

    The log resumes at `first_update`: it drops the lines of updates that the run will repeat, and a last line that a kill cut off.
    The numbers of a row become TensorBoard's scalars, in the folder `tensorboard` beside the log.

    Raises:
        InvalidRun: another line of the log is not the row of an update.
    """
    write_json_lines(path, (row.fields for row in read_metrics(path) if row.count("update") < first_update))
    with ExitStack() as opened:
        events: Any = None
        if importlib.util.find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            events = opened.enter_context(SummaryWriter(str(path.parent / "tensorboard"), purge_step=first_update))

        def write(row: Mapping[str, Any]) -> None:
            append_json_line(path, row)
            for name, value in row.items() if events is not None else ():
                if isinstance(value, float | int) and name != "update":
                    events.add_scalar(name, value, row["update"])

        yield write


def read_metrics(path: Path) -> list[JsonObject]:
    """The rows of a log, without a last line that a kill cut off; none if the file is absent.

    Raises:
        InvalidRun: another line is not JSON.
    """
    rows = read_json_lines(path, InvalidRun)
    return [json_object(row, str(path), InvalidRun) for row in rows]


class InvalidRun(GnnplaceError):
    """A folder holds no training run that can be resumed, or one that must not be overwritten."""


@dataclass(eq=False)
class RunState:
    """State of a run, changed by every update. Random numbers follow from seed, update and rank, so it holds no generator."""

    network: PolicyNetwork
    optimizer: torch.optim.Optimizer
    update: int = 0
    """Number of completed updates."""
    wall_s: float = 0.0
    """Seconds of these updates, over all starts of the run."""
    settings: str = ""
    """Settings of the run, in a form that the caller chose."""


def fresh_state(network: PolicyNetwork, settings: str) -> RunState:
    """The state before the first update; each update sets the learning rate."""
    return RunState(network, ppo_optimizer(network, learning_rate=0.0), settings=settings)


def write_state(path: Path, state: RunState) -> None:
    """Replaces the file at once: a kill at any moment leaves the old one or the new one."""
    document = {
        "format": _FORMAT,
        "policy": dataclasses.asdict(state.network.config),
        "network": state.network.state_dict(),
        "optimizer": state.optimizer.state_dict(),
        "update": state.update,
        "wall_s": state.wall_s,
        "settings": state.settings,
    }
    buffer = io.BytesIO()  # on a full disk torch.save would raise something other than OSError
    torch.save(document, buffer)
    with new_file(path) as temporary:
        temporary.write_bytes(buffer.getvalue())


def read_state(path: Path) -> RunState:
    """The state that `write_state` wrote.

    Raises:
        InvalidRun: the file is missing or is not the state of a run.
    """
    try:
        with warnings.catch_warnings(action="ignore"):  # about files of other torch versions
            document: dict[str, Any] = torch.load(path, weights_only=True)  # tensors and plain values, no objects
        if document["format"] != _FORMAT:
            raise InvalidRun(f"{path}: the format is {shown(document['format'])}; expected {_FORMAT!r}")
        network = restored_network(checked_config(document["policy"], str(path)), document["network"], str(path))
        optimizer = ppo_optimizer(network, learning_rate=0.0)  # the state restores the rate
        optimizer.load_state_dict(document["optimizer"])
        update, wall_s = document["update"], document["wall_s"]
        if type(update) is not int or update < 0 or not isinstance(wall_s, int | float) or not wall_s >= 0:
            raise InvalidRun(f"{path}: is damaged ({shown(update)} updates in {shown(wall_s)} s); start another run")
        return RunState(network, optimizer, update, wall_s, document["settings"])
    except OSError as error:
        raise InvalidRun(f"{path}: cannot be read ({error.strerror}); is this the folder of a training run?") from None
    except InvalidPolicy as error:
        raise InvalidRun(str(error)) from None
    except _DAMAGED as error:
        raise InvalidRun(f"{path}: is no state of a training run of this version ({error})") from None

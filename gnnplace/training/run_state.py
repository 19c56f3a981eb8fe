"""Where a training run stands, as a file: enough to go on as if nothing had happened."""

from __future__ import annotations

import dataclasses
import io
import pickle
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gnnplace.errors import GnnplaceError, shown
from gnnplace.files import new_file
from gnnplace.policy.checkpoint import InvalidPolicy, checked_config, restored_network
from gnnplace.policy.network import PolicyNetwork
from gnnplace.training.search_ppo import ppo_optimizer

__all__ = ["InvalidRun", "RunState", "fresh_state", "read_state", "write_state"]

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

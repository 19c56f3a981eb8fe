"""Policy files: weights as safetensors, and a JSON card beside them that describes the network and its training."""

import dataclasses
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from gnnplace.errors import GnnplaceError, did_you_mean, shown
from gnnplace.files import new_file, read_json
from gnnplace.policy import POLICIES, SHIPPED_POLICY
from gnnplace.policy.features import FEATURE_VERSION
from gnnplace.policy.linear import PRIOR, LinearPolicy
from gnnplace.policy.network import PolicyConfig, PolicyNetwork, build_policy

FORMAT = "gnnplace.policy/1"
_LINEAR: Mapping[str, Mapping[str, float]] = {"prior": PRIOR, "uniform": {}}
_LATER_SWITCHES = ("schedule_features",)  # that cards of earlier versions lack
Policy = PolicyNetwork | LinearPolicy
"""A policy of `gnn`: trained, or linear with weights by hand."""


class InvalidPolicy(GnnplaceError):
    """The file is not a policy, or its features or shapes are not those of this version."""


def save_policy(path: Path, network: PolicyNetwork, card: Mapping[str, Any]) -> None:
    """Writes `path` (`.safetensors`) and its card (`.json` beside it) with the facts in `card`: data, command, seeds, results."""
    document = {
        **card,
        "format": FORMAT,
        "feature_version": FEATURE_VERSION,
        "config": dataclasses.asdict(network.config),
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
    }
    card_path = path.with_suffix(".json")
    with new_file(card_path) as new_card, new_file(path) as new_weights:
        new_weights.write_bytes(save({name: tensor.contiguous() for name, tensor in network.state_dict().items()}))
        new_card.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        card_path.unlink(missing_ok=True)  # without a card no policy is read, until both files are in place


def load_policy(path: Path) -> tuple[PolicyNetwork, dict[str, Any]]:
    """The network in `path` (`.safetensors`) and its card.

    Raises:
        InvalidPolicy: a file is missing or damaged, or has other features or shapes.
    """
    card = read_json(path.with_suffix(".json"), InvalidPolicy)
    if not isinstance(card, dict) or card.get("format") != FORMAT:
        raise InvalidPolicy(f'{path.with_suffix(".json")}: "format" is not {FORMAT!r}; is this the card of a policy?')
    if card.get("feature_version") != FEATURE_VERSION:
        raise InvalidPolicy(
            f"{path}: was trained with feature version {shown(card.get('feature_version'))}, this version has {FEATURE_VERSION}; train it again"
        )
    config = checked_config(card.get("config"), str(path.with_suffix(".json")))
    try:
        stored = load_file(path)
    except (OSError, SafetensorError) as error:
        raise InvalidPolicy(f"{path}: cannot be read as safetensors ({error})") from None
    return restored_network(config, stored, str(path)), card


def named_policy(policy: str | Path) -> Policy:
    """The policy of a name in `POLICIES`, else of a file, which is read again only after it has changed.

    Callers share the network and must not train it.

    Raises:
        InvalidPolicy: no policy has this name, or the file cannot be used.
    """
    if policy in _LINEAR:
        return LinearPolicy(_LINEAR[str(policy)])
    path = policy_file(policy)
    try:
        state = path.stat()
    except OSError:
        return load_policy(path)[0]  # which says what is missing
    return _read_policy(path.absolute(), (state.st_ino, state.st_size, state.st_mtime_ns))


def policy_file(policy: str | Path) -> Path:
    """The file of a policy that has weights, by its name or path; a file need not exist.

    Raises:
        InvalidPolicy: no policy has this name, or it has no weights.
    """
    if policy in _LINEAR:
        raise InvalidPolicy(f"the policy {policy!r} has no weights; choose 'shipped', or the file of a trained one")
    path = SHIPPED_POLICY if policy == "shipped" else Path(policy)
    if path.suffix != SHIPPED_POLICY.suffix:
        hint = did_you_mean(str(policy), POLICIES, f"known are {', '.join(POLICIES)}.")
        raise InvalidPolicy(f"there is no policy {str(policy)!r}; {hint} Others are files, NAME{SHIPPED_POLICY.suffix}")
    return path


@lru_cache(maxsize=4)
def _read_policy(path: Path, version: tuple[int, ...]) -> PolicyNetwork:
    return load_policy(path)[0]


def restored_network(config: PolicyConfig, stored: Mapping[str, Tensor], where: str) -> PolicyNetwork:
    """The network of this configuration with the stored weights; it allocates memory only after all shapes match.

    Raises:
        InvalidPolicy: a weight is missing, unknown, of another shape or type, or not finite.
    """
    with torch.device("meta"):
        expected = PolicyNetwork(config).state_dict()
    for name in sorted(set(stored) | set(expected)):
        needed = tuple(expected[name].shape) if name in expected else None
        found = tuple(stored[name].shape) if name in stored else None
        if needed != found:
            raise InvalidPolicy(f"{where}: tensor {name!r} has the shape {found}; its card needs {needed}")
        if stored[name].dtype != expected[name].dtype:
            raise InvalidPolicy(f"{where}: tensor {name!r} holds {stored[name].dtype}; expected {expected[name].dtype}")
        if not torch.isfinite(stored[name]).all():
            raise InvalidPolicy(f"{where}: tensor {name!r} holds infinite numbers or NaN; expected finite ones")
    network = build_policy(0, config)  # leaves the state of torch's generator
    network.load_state_dict(stored)
    return network


def checked_config(stated: object, where: str) -> PolicyConfig:
    """The configuration in `stated`; the message of an error begins with `where`.

    Raises:
        InvalidPolicy: a field is missing, unknown, of another type or out of bounds.
    """
    defaults = dataclasses.asdict(PolicyConfig())
    older = {name: defaults[name] for name in _LATER_SWITCHES}
    values = older | stated if isinstance(stated, dict) else {}
    is_whole = values.keys() == defaults.keys() and all(type(values[name]) is type(defaults[name]) for name in defaults)
    sizes = [name for name, default in defaults.items() if type(default) is int]
    switches = [name for name, default in defaults.items() if type(default) is bool]
    least = {name: 0 if name == "decision_width" else 1 for name in sizes}
    if not is_whole or not all(least[name] <= values[name] <= 4096 for name in sizes):
        raise InvalidPolicy(
            f"{where}: 'config' is {shown(stated)}; expected the sizes {', '.join(sizes)} (1 to 4096, decision_width also 0) "
            f"and true or false for {', '.join(switches)}"
        )
    return PolicyConfig(**values)

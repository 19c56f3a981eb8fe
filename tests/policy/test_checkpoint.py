"""Policy files."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from gnnplace.policy.checkpoint import InvalidPolicy, load_policy, named_policy, save_policy
from gnnplace.policy.features import FEATURE_VERSION
from gnnplace.policy.network import PolicyConfig, PolicyNetwork, build_policy

SMALL = dataclasses.asdict(PolicyConfig(hidden=8, rounds=1))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A small policy on disk."""
    path = tmp_path / "policy.safetensors"
    save_policy(path, build_policy(3, PolicyConfig(hidden=8, rounds=1)), {"data": "toy", "seed": 3})
    return path


def change(path: Path, **entries: object) -> None:
    """Overwrites entries of the card."""
    card = path.with_suffix(".json")
    card.write_text(json.dumps({**json.loads(card.read_text()), **entries}))


def test_a_saved_policy_comes_back_with_its_card(saved: Path) -> None:
    network, card = load_policy(saved)
    expected = build_policy(3, PolicyConfig(hidden=8, rounds=1))
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), expected.parameters(), strict=True))
    assert (card["data"], card["seed"]) == ("toy", 3)
    assert card["parameters"] == sum(p.numel() for p in expected.parameters())


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"feature_version": 0}, f"feature version 0, this version has {FEATURE_VERSION}"),
        ({"config": {**SMALL, "hidden": 16}}, r"tensor 'decisions.graph.weight' has the shape"),
        ({"format": "something else"}, "is this the card of a policy"),
    ],
)
def test_another_format_and_other_features_or_shapes_are_refused(
    saved: Path, entries: dict[str, object], message: str
) -> None:
    change(saved, **entries)
    with pytest.raises(InvalidPolicy, match=message):
        load_policy(saved)


@pytest.mark.parametrize(
    "config",
    [
        None,
        {},
        {"hidden": 8, "rounds": 1, "type_width": 8},
        {**SMALL, "depth": 3},
        {**SMALL, "hidden": -1},
        {**SMALL, "rounds": 5000},
        {**SMALL, "hidden": "8"},
        {**SMALL, "rounds": True},
        {**SMALL, "message_passing": 1},
    ],
    ids=str,
)
def test_a_card_without_a_possible_configuration_is_refused_in_one_line(saved: Path, config: object) -> None:
    change(saved, config=config)
    with pytest.raises(InvalidPolicy, match="expected the sizes hidden, rounds, type_width") as refusal:
        load_policy(saved)
    assert "\n" not in str(refusal.value)


def test_the_ablations_come_back_from_the_card(tmp_path: Path) -> None:
    path, config = (
        tmp_path / "policy.safetensors",
        PolicyConfig(8, message_passing=False, device_features=False, schedule_features=False),
    )
    save_policy(path, build_policy(0, config), {})
    network, _ = load_policy(path)
    assert network.config == config
    assert len(network.state_dict()) == len(build_policy(0, config).state_dict())


def test_a_card_from_before_an_ablation_existed_has_nothing_left_out(saved: Path) -> None:
    change(saved, config={name: value for name, value in SMALL.items() if name != "schedule_features"})
    assert load_policy(saved)[0].config == PolicyConfig(hidden=8, rounds=1)


def test_broken_and_missing_files_are_refused_in_one_line(saved: Path) -> None:
    saved.write_bytes(saved.read_bytes()[:100])
    with pytest.raises(InvalidPolicy, match="cannot be read as safetensors"):
        load_policy(saved)
    saved.unlink()
    with pytest.raises(InvalidPolicy, match="cannot be read"):
        load_policy(saved)
    saved.with_suffix(".json").unlink()
    with pytest.raises(InvalidPolicy, match="check the path"):
        load_policy(saved)


def test_a_file_is_read_again_only_after_it_has_changed(saved: Path) -> None:
    first = named_policy(saved)
    assert named_policy(str(saved)) is first
    save_policy(saved, build_policy(9, PolicyConfig(hidden=8, rounds=1)), {})
    second = named_policy(saved)
    assert isinstance(first, PolicyNetwork)
    assert isinstance(second, PolicyNetwork)
    assert not all(torch.equal(one, other) for one, other in zip(first.parameters(), second.parameters(), strict=True))

"""The shipped policy."""

import dataclasses
import json

import pytest
import torch

from gnnplace.api.train_settings import TrainSettings
from gnnplace.api.training_problems import training_families
from gnnplace.bench.generalization.rows import ROWS, fingerprint
from gnnplace.planners.gnn.planner import GnnConfig
from gnnplace.policy import SHIPPED_POLICY
from gnnplace.policy.checkpoint import load_policy, named_policy
from gnnplace.policy.network import PolicyConfig, PolicyNetwork


def test_the_improver_starts_from_the_shipped_policy_which_fits_this_version() -> None:
    network, _ = load_policy(SHIPPED_POLICY)
    assert GnnConfig().policy == "shipped"
    loaded = named_policy("shipped")
    assert isinstance(loaded, PolicyNetwork)
    assert loaded.state_dict().keys() == network.state_dict().keys()
    assert all(torch.equal(loaded.state_dict()[name], weights) for name, weights in network.state_dict().items())
    assert network.config == PolicyConfig()
    assert network.decides
    assert SHIPPED_POLICY.stat().st_size < 500_000


def test_the_policy_was_trained_in_runs_of_which_the_card_has_the_commands_and_the_last_one_its_settings() -> None:
    network, card = load_policy(SHIPPED_POLICY)
    commands = [run["command"] for run in card["earlier_runs"]] + [card["command"]]
    assert commands == [
        "gnnplace train --out first.safetensors --updates 600 --processes 2 --seed 0",
        "gnnplace train --out second.safetensors --updates 350 --processes 2 --seed 1 --policy first.safetensors",
        "gnnplace train --out third.safetensors --updates 330 --processes 2 --seed 3 --policy second.safetensors",
        "gnnplace train --out gnn.safetensors --updates 280 --processes 2 --seed 7 --policy third.safetensors",
    ]
    assert card["start"]["sha256"] == card["earlier_runs"][-1]["sha256"]
    settings = TrainSettings.of(num_updates=280, num_processes=2, seed=7, is_trained=True)
    training = dataclasses.replace(settings.training, imitation_share=0.0)  # the first run imitated
    data = {
        "families": training_families(),
        **dataclasses.asdict(settings.problems),
        "lessons": dataclasses.asdict(settings.lessons),
    }
    assert network.config == settings.policy
    assert card["training"] == json.loads(json.dumps(dataclasses.asdict(training)))
    assert card["teaching"] == json.loads(json.dumps(dataclasses.asdict(settings.teaching)))
    assert card["data"] == json.loads(json.dumps(data))


def test_the_card_repeats_the_stored_bench_of_held_out_families() -> None:
    _, card = load_policy(SHIPPED_POLICY)
    held_out = card["held_out"]
    result = SHIPPED_POLICY.parents[2] / held_out["result"]
    if not result.exists():
        pytest.skip("results stay in the repository: an installed package has the policy and its card")
    stored = json.loads(result.read_text(encoding="utf-8"))
    assert held_out["command"] == stored["command"]
    assert held_out["summary"] == stored["summary"]
    policies = {
        run["depends_on"] for case in stored["details"]["cases"].values() for run in case["results"]["gnn-zero-shot"]
    }
    assert policies == {fingerprint(ROWS["gnn-zero-shot"], SHIPPED_POLICY)}

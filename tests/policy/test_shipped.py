"""The policy that is shipped."""

import dataclasses
import json

from gnnplace.api.train import TrainSettings
from gnnplace.api.training_problems import training_families
from gnnplace.planners.learned.gnn import GnnConfig
from gnnplace.policy.checkpoint import load_policy
from gnnplace.policy.network import PolicyConfig
from gnnplace.policy.shipped import SHIPPED_POLICY


def test_the_improver_begins_with_it_and_it_fits_this_version() -> None:
    network, _ = load_policy(SHIPPED_POLICY)
    assert GnnConfig().policy == SHIPPED_POLICY
    assert network.config == PolicyConfig()
    assert SHIPPED_POLICY.stat().st_size < 500_000


def test_the_command_on_its_card_still_means_the_training_that_it_had_and_that_was_not_cut_short() -> None:
    _, card = load_policy(SHIPPED_POLICY)
    assert card["command"] == "gnnplace train --out gnn.safetensors --updates 600 --processes 2 --seed 0 --encoder mean"
    settings = TrainSettings.of(num_updates=600, num_processes=2, seed=0)
    data = {"families": training_families(), **dataclasses.asdict(settings.problems)}
    assert card["updates"] == 600
    assert card["training"] == json.loads(json.dumps(dataclasses.asdict(settings.training)))
    assert card["data"] == json.loads(json.dumps(data))
    assert card["start"] is None

"""The policy that is shipped."""

from gnnplace.api.train import TrainSettings
from gnnplace.api.training_problems import training_families
from gnnplace.planners.learned.gnn import GnnConfig
from gnnplace.policy.checkpoint import SHIPPED_POLICY, load_policy
from gnnplace.policy.network import PolicyConfig


def test_the_improver_begins_with_it_and_it_fits_this_version() -> None:
    network, _ = load_policy(SHIPPED_POLICY)
    assert GnnConfig().policy == SHIPPED_POLICY
    assert network.config == PolicyConfig()
    assert SHIPPED_POLICY.stat().st_size < 500_000


def test_its_card_says_how_it_was_trained_and_that_training_was_not_cut_short() -> None:
    _, card = load_policy(SHIPPED_POLICY)
    assert card["command"].startswith(f"gnnplace train --out {SHIPPED_POLICY.name} --updates {card['updates']} ")
    assert card["data"]["families"] == list(training_families())
    assert {"gnnplace", "torch", "dgl"} <= card["versions"].keys()
    assert card["wall_s"] > 0
    settings = TrainSettings.of(card["updates"], card["training"]["num_processes"], card["seed"])
    assert card["training"]["ppo"]["num_updates"] == settings.training.ppo.num_updates
    assert card["start"] is None

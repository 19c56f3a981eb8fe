"""The Gymnasium environment."""

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from gnnplace.env.episodes import EnvConfig
from gnnplace.env.placement_env import PlacementEnv
from gnnplace.errors import GnnplaceError, InvalidAction, InvalidPlacement
from tests.problems import random_layers, two_chains


@pytest.mark.parametrize("lookahead", [False, True])
def test_the_environment_passes_gymnasiums_own_checks(lookahead: bool) -> None:
    problem = random_layers()
    env = PlacementEnv(problem, np.zeros(30, dtype=np.int64), EnvConfig(lookahead=lookahead))
    check_env(env, skip_render_check=True)
    observation, _ = env.reset()
    assert env.observation_space.contains(observation)
    assert set(observation) == {"static", "dynamic"}


@pytest.mark.parametrize("action", [1.7, "1", [0, 1], None])
def test_an_action_that_is_no_number_of_a_device_is_refused(action: object) -> None:
    env = PlacementEnv(two_chains(), np.zeros(6, dtype=np.int64))
    env.reset()
    with pytest.raises(InvalidAction, match="expected the number of a device"):
        env.step(action)  # type: ignore[arg-type]


def test_before_the_first_reset_steps_and_masks_say_so() -> None:
    env = PlacementEnv(two_chains(), np.zeros(6, dtype=np.int64))
    with pytest.raises(InvalidAction, match="call reset first"):
        env.action_masks()
    with pytest.raises(InvalidAction, match="call reset first"):
        env.step(np.int64(0))


@pytest.mark.parametrize("sweeps", [0, -1, 1.5, "x"])
def test_an_episode_has_at_least_one_sweep(sweeps: object) -> None:
    with pytest.raises(GnnplaceError, match=r"num_sweeps is .*expected a whole number from 1 on"):
        EnvConfig(num_sweeps=sweeps)  # type: ignore[arg-type]


def test_a_start_that_is_no_placement_is_refused() -> None:
    env = PlacementEnv(two_chains(), np.zeros(6, dtype=np.int64))
    with pytest.raises(InvalidPlacement, match="expected the number of a device per op"):
        env.reset(options={"start": np.full(6, 0.7)})


def test_an_episode_ends_after_every_unit_was_visited_in_every_sweep() -> None:
    env = PlacementEnv(two_chains(), np.zeros(6, dtype=np.int64), EnvConfig(num_sweeps=2))
    env.reset()
    ended = [env.step(np.int64(0))[2] for _ in range(12)]
    assert ended == [False] * 11 + [True]


def test_observations_are_shares_that_can_be_computed_by_hand() -> None:
    env = PlacementEnv(two_chains(), np.zeros(6, dtype=np.int64), EnvConfig(lookahead=True))
    observation, _ = env.reset()
    static, dynamic = observation["static"], observation["dynamic"]
    assert static["unit_time"].tolist() == [[1.0, 1.0]] * 6
    assert static["edge_bytes"].tolist() == [0.25] * 4
    assert sorted(map(tuple, static["edges"].tolist())) == [(0, 2), (1, 3), (2, 4), (3, 5)]
    assert dynamic["load"].tolist() == [1.0, 0.0]
    assert dynamic["slack"].tolist() == [0.0] * 6
    assert dynamic["action_mask"].tolist() == [1, 1]
    # Moving the first op of a chain away saves one second of six.
    np.testing.assert_allclose(dynamic["candidate_change"], [0.0, -1 / 6], rtol=1e-6)


def test_reset_may_begin_elsewhere_and_reports_the_best_seen() -> None:
    env = PlacementEnv(two_chains(), np.zeros(6, dtype=np.int64))
    _, facts = env.reset(options={"start": [0, 1, 0, 1, 0, 1]})
    assert facts["seconds"] == 3.0
    _, reward, _, _, facts = env.step(np.int64(1))
    assert reward < 0
    assert facts["best_seconds"] == 3.0
    assert facts["best_assignment"].tolist() == [0, 1, 0, 1, 0, 1]

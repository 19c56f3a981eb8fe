"""The compiled head and the one that learns."""

from __future__ import annotations

import numpy as np
import torch

from gnnplace.policy.features import DEVICE_FEATURES
from gnnplace.policy.network import CandidateMoves, PolicyConfig, build_policy, policy_inputs
from gnnplace.policy.pair_features import CONTEXT, PAIR
from gnnplace.policy.pair_scores import head_parts, pair_scores
from tests.toy_problems import random_layers


def test_the_compiled_head_gives_the_scores_of_the_network() -> None:
    problem = random_layers(1)
    inputs, units, devices = policy_inputs(problem), problem.num_units, problem.topology.num_devices
    assert inputs.devices.shape == (devices, len(DEVICE_FEATURES))
    rng = np.random.default_rng(0)
    for config in (PolicyConfig(), PolicyConfig(hidden=16, device_features=False)):
        network = build_policy(0, config)
        with torch.no_grad():  # fresh weights of the score are zero
            network.head.score.weight.normal_(generator=torch.Generator().manual_seed(0))
            embeddings = torch.from_numpy(rng.normal(size=(units, 1, config.hidden)).astype(np.float32))
            pair = rng.normal(size=(units, devices, len(PAIR))).astype(np.float32)
            context = rng.normal(size=(units, len(CONTEXT))).astype(np.float32)
            moves = CandidateMoves(
                torch.zeros(units, dtype=torch.int64), torch.arange(units), torch.from_numpy(pair),
                torch.from_numpy(context), torch.ones(units, devices, dtype=torch.bool),
            )  # fmt: skip
            expected = network.logits(inputs, embeddings, moves).numpy()
        scores = pair_scores(head_parts(network, inputs, embeddings), pair, context)
        assert np.abs(expected).max() > 1.0
        np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4)

"""The whole policy: encode a sweep once, then answer one unit after the other cheaply."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gnnplace.env.units import UnitTables, unit_tables
from gnnplace.evaluation import Problem
from gnnplace.policy.dgl_graph import DglMessages, to_dgl
from gnnplace.policy.encoder import MessagePassingEncoder, Messages, ScatterMessages
from gnnplace.policy.features import (
    DEVICE_FEATURES,
    EDGE_FEATURES,
    NODE_FEATURES,
    NUM_TYPE_BUCKETS,
    GraphFeatures,
    graph_features,
)
from gnnplace.policy.head import PairHead
from gnnplace.policy.pair_features import CONTEXT_FEATURES

__all__ = ["PolicyConfig", "PolicyInputs", "PolicyNetwork", "Questions", "build_policy", "policy_inputs"]


@dataclass(frozen=True)
class PolicyConfig:
    """The shape of the network."""

    hidden: int = 32
    """`H`; Placeto (Addanki et al. 2019) has 16k to 55k parameters in all."""
    rounds: int = 3
    """Message rounds; both directions in each."""
    type_width: int = 8
    """Numbers that describe an op type."""


@dataclass(frozen=True, eq=False)
class Questions:
    """`R` questions: where to put `units[r]` in placement `rows[r]`."""

    rows: Tensor  # [R]
    units: Tensor  # [R]
    pair: Tensor  # [R, D, F]
    context: Tensor  # [R, F]
    mask: Tensor  # [R, D] true where the unit may go


@dataclass(frozen=True, eq=False)
class PolicyInputs:
    """What the network needs to know of a problem, made once."""

    tables: UnitTables
    features: GraphFeatures
    messages: Messages
    type_buckets: Tensor  # [U]
    devices: Tensor  # [D, F]


def policy_inputs(problem: Problem, with_dgl: bool = True) -> PolicyInputs:
    """The static inputs of a problem, on DGL or on plain torch."""
    tables = unit_tables(problem)
    features = graph_features(problem, tables)
    messages: Messages = (
        DglMessages(to_dgl(problem, features))
        if with_dgl
        else ScatterMessages(torch.from_numpy(features.ends), problem.num_units)
    )
    return PolicyInputs(
        tables, features, messages, torch.from_numpy(features.type_buckets), torch.from_numpy(features.devices)
    )


class PolicyNetwork(nn.Module):
    """Encoder and head."""

    def __init__(self, config: PolicyConfig = PolicyConfig()) -> None:
        """Fresh weights from torch's current generator; `build_policy` makes them from a seed."""
        super().__init__()
        self.config = config
        self.encoder = MessagePassingEncoder(
            len(NODE_FEATURES), len(EDGE_FEATURES), NUM_TYPE_BUCKETS, config.type_width, config.hidden, config.rounds
        )
        self.head = PairHead(config.hidden, len(DEVICE_FEATURES), len(CONTEXT_FEATURES))

    def encode(self, inputs: PolicyInputs, nodes: Tensor, edges: Tensor) -> Tensor:
        """Embeddings `[U, B, H]` from `features.sweep_features`; once per sweep."""
        embeddings: Tensor = self.encoder(inputs.messages, inputs.type_buckets, nodes, edges)
        return embeddings

    def answer(
        self,
        inputs: PolicyInputs,
        embeddings: Tensor,
        questions: Questions,
    ) -> tuple[Tensor, Tensor]:
        """Masked logits `[R, D]` and values `[R]`; `embeddings` `[U, B, H]` are those of the current sweep."""
        unit = embeddings[questions.units, questions.rows]
        graph = embeddings.mean(dim=0)[questions.rows]
        logits, values = self.head(unit, graph, inputs.devices, questions.pair, questions.context, questions.mask)
        return logits, values


def build_policy(seed: int, config: PolicyConfig = PolicyConfig()) -> PolicyNetwork:
    """A fresh network whose weights follow from the seed; torch's own generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return PolicyNetwork(config)

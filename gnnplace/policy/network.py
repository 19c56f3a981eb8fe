"""The whole policy: encode the graph once, then score any unit on any device cheaply."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gnnplace.env.units import UnitTables, unit_tables
from gnnplace.evaluation import Problem
from gnnplace.policy.dgl_graph import dgl_messages, to_dgl
from gnnplace.policy.encoder.graph_encoder import InputSizes, MessagePassingEncoder
from gnnplace.policy.encoder.neighbours import Messages, scatter_messages
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
    """The shape of the network, and what it may see."""

    hidden: int = 32
    """`H`; Placeto (Addanki et al. 2019) has 16k to 55k parameters in all."""
    rounds: int = 3
    """Message rounds; both directions in each."""
    type_width: int = 8
    """Numbers that describe an op type."""
    message_passing: bool = True
    """False, for ablation: no rounds; each unit is known by its own features alone."""
    device_features: bool = True
    """False, for ablation: all devices look alike by themselves; what a unit would do on them still differs."""


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
    messages = (
        dgl_messages(to_dgl(problem, features))
        if with_dgl
        else scatter_messages(torch.from_numpy(features.ends), problem.num_units)
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
            InputSizes(len(NODE_FEATURES), NUM_TYPE_BUCKETS, config.type_width, len(EDGE_FEATURES)),
            config.hidden,
            config.rounds if config.message_passing else 0,
        )
        self.head = PairHead(config.hidden, len(DEVICE_FEATURES), len(CONTEXT_FEATURES))

    def encode(self, inputs: PolicyInputs, nodes: Tensor, edges: Tensor) -> Tensor:
        """Embeddings `[U, B, H]` from `features.sweep_features`."""
        embeddings: Tensor = self.encoder(inputs.messages, inputs.type_buckets, nodes, edges)
        return embeddings

    def logits(self, inputs: PolicyInputs, embeddings: Tensor, questions: Questions) -> Tensor:
        """Masked logits `[R, D]`; `embeddings` `[U, B, H]` are those of `encode`."""
        unit = embeddings[questions.units, questions.rows]
        graph = embeddings.mean(dim=0)[questions.rows]
        devices = self.devices(inputs)
        logits: Tensor = self.head(unit, graph, devices, questions.pair, questions.context, questions.mask)
        return logits

    def devices(self, inputs: PolicyInputs) -> Tensor:
        """What the head sees of the devices by themselves `[D, F]`."""
        return inputs.devices if self.config.device_features else torch.zeros_like(inputs.devices)


def build_policy(seed: int, config: PolicyConfig = PolicyConfig()) -> PolicyNetwork:
    """A fresh network whose weights follow from the seed; torch's own generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return PolicyNetwork(config)

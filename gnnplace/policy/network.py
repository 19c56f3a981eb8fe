"""Scores of (unit, device) pairs with shared weights, so any number of devices works."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gnnplace.env.units import UnitTables, unit_tables
from gnnplace.evaluation import Problem
from gnnplace.policy.dgl_graph import HAS_DGL, dgl_messages, to_dgl
from gnnplace.policy.encoder import MessagePassing, MessagePassingEncoder, torch_messages
from gnnplace.policy.features import DEVICE_FEATURES, GraphFeatures, graph_features
from gnnplace.policy.pair_features import CONTEXT_FEATURES, PAIR_FEATURES

__all__ = [
    "PairHead",
    "PolicyConfig",
    "PolicyInputs",
    "PolicyNetwork",
    "Questions",
    "build_policy",
    "masked_logits",
    "policy_inputs",
]


PRIOR = {
    "is_current": 2.0,
    "slack_kept": 10.0,
    "path_change": -1.0,
    "transfer_change": -0.5,
    "load_after": -1.0,
    "fits": 2.0,
}
"""What an untrained policy believes: an op with slack stays where it is, a critical one goes where the longest path, the
transfers or the busiest device get shorter."""


def masked_logits(logits: Tensor, mask: Tensor) -> Tensor:
    """The logits `[..., D]` with minus infinity where `mask` is false: probability exactly 0."""
    return logits.masked_fill(~mask, -torch.inf)


class PairHead(nn.Module):
    """A score per device for one unit.

    The score is a linear function of the pair's features, which starts as `PRIOR` and is learned like everything else,
    plus a two-layer network that also sees the embeddings and starts at 0.
    """

    def __init__(self, hidden: int, device_features: int, context_features: int) -> None:
        """Weights for embeddings of width `hidden`."""
        super().__init__()
        pair_features = len(PAIR_FEATURES)
        self._context_features = context_features
        self.prior = nn.Linear(pair_features, 1, bias=False)
        self.unit = nn.Linear(hidden + context_features, hidden)
        self.graph = nn.Linear(hidden, hidden, bias=False)
        self.pair = nn.Linear(pair_features + device_features, hidden, bias=False)
        self.score = nn.Linear(hidden, 1, bias=False)
        with torch.no_grad():
            self.prior.weight.copy_(torch.tensor([[PRIOR.get(name, 0.0) for name in PAIR_FEATURES]]))
            self.score.weight.zero_()

    def forward(
        self, unit: Tensor, graph: Tensor, devices: Tensor, pair: Tensor, context: Tensor, mask: Tensor
    ) -> Tensor:
        """Masked logits `[R, D]` of `R` questions.

        `unit` `[R, H]` and `graph` `[R, H]` are embeddings, `devices` `[D, F]`, `pair` `[R, D, F]`, `context` `[R, F]`, `mask` `[R, D]`.
        """
        hidden = self._hidden(unit, graph, devices, pair, context)
        return masked_logits((self.prior(pair) + self.score(hidden)).squeeze(-1), mask)

    def parts(self, unit: Tensor, graph: Tensor, devices: Tensor) -> tuple[Tensor, ...]:
        """What `forward` comes down to for embeddings `[U, H]` of all units and `[H]` of the graph, and devices `[D, F]`.

        Weights of the linear score `[F]`, of pair `[F, H]` and context `[C, H]` in the hidden layer, and of its score
        `[H]`; then what units `[U, H]` and devices `[D, H]` add to the hidden layer, whatever is asked.
        """
        of_unit, of_context = torch.split(self.unit.weight, [unit.shape[-1], self._context_features], dim=1)
        of_pair, of_device = self._pair_weights(devices)
        units = nn.functional.linear(unit, of_unit, self.unit.bias) + self.graph(graph)
        return self.prior.weight[0], of_pair.T, of_context.T, self.score.weight[0], units, devices @ of_device.T

    def _hidden(self, unit: Tensor, graph: Tensor, devices: Tensor, pair: Tensor, context: Tensor) -> Tensor:
        about = self.unit(torch.cat([unit, context], dim=-1)) + self.graph(graph)
        # In place, since at R = 500 and D = 8 fresh memory costs as much as the arithmetic.
        of_pair, of_device = self._pair_weights(devices)
        hidden = nn.functional.linear(pair, of_pair).add_(nn.functional.linear(devices, of_device))
        return hidden.add_(about[:, None, :]).relu_()

    def _pair_weights(self, devices: Tensor) -> list[Tensor]:
        """The linear layer over [pair, device] in two parts, since devices are the same for all questions."""
        return list(torch.split(self.pair.weight, [len(PAIR_FEATURES), devices.shape[-1]], dim=1))


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
    messages: MessagePassing
    type_buckets: Tensor  # [U]
    devices: Tensor  # [D, F]


def policy_inputs(problem: Problem, with_dgl: bool = HAS_DGL) -> PolicyInputs:
    """The static inputs of a problem; messages pass through DGL where it is installed, else through plain torch."""
    tables = unit_tables(problem)
    features = graph_features(problem, tables)
    messages = (
        dgl_messages(to_dgl(problem, features))
        if with_dgl
        else torch_messages(torch.from_numpy(features.ends), problem.num_units)
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
            config.hidden, config.rounds if config.message_passing else 0, config.type_width
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

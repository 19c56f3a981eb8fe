"""The policy network: scores of (unit, device) pairs with shared weights, so that any number of devices works."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from gnnplace.env.timing import UnitTables, unit_tables
from gnnplace.evaluation import Problem
from gnnplace.policy.decisions import DecisionHead, DecisionParts, no_decisions
from gnnplace.policy.dgl_graph import HAS_DGL, dgl_messages, to_dgl
from gnnplace.policy.encoder import MessagePassing, MessagePassingEncoder, torch_messages
from gnnplace.policy.features import (
    DEVICE_FEATURES,
    EDGE_FEATURES,
    NODE_FEATURES,
    SCHEDULE_EDGE_FEATURES,
    SCHEDULE_NODE_FEATURES,
    GraphFeatures,
    graph_features,
    seen_columns,
)
from gnnplace.policy.pair_features import CONTEXT, PAIR, SCHEDULE_CONTEXT, SCHEDULE_PAIR
from gnnplace.policy.pair_scores import HeadParts


class PairHead(nn.Module):
    """A score per device for one unit.

    The score is a linear function of the pair's features plus a two-layer network that also reads the embeddings. All weights
    begin random.
    """

    seen_pair: Tensor
    seen_context: Tensor

    def __init__(
        self,
        hidden: int,
        num_pair: int = len(PAIR),
        num_context: int = len(CONTEXT),
        sees_schedules: bool = True,
    ) -> None:
        """Reads the first `num_pair` features of a pair and the first `num_context` of its context.

        Without `sees_schedules`, features that name times of the schedule count as 0.
        """
        super().__init__()
        pair = seen_columns(PAIR._fields[:num_pair], SCHEDULE_PAIR, sees_schedules)
        context = seen_columns(CONTEXT._fields[:num_context], SCHEDULE_CONTEXT, sees_schedules)
        self.register_buffer("seen_pair", torch.tensor(pair), persistent=False)
        self.register_buffer("seen_context", torch.tensor(context), persistent=False)
        self.num_pair, self.num_context = num_pair, num_context
        self.linear = nn.Linear(num_pair, 1, bias=False)
        self.unit = nn.Linear(hidden + num_context, hidden)
        self.graph = nn.Linear(hidden, hidden, bias=False)
        self.pair = nn.Linear(num_pair + len(DEVICE_FEATURES), hidden, bias=False)
        self.score = nn.Linear(hidden, 1, bias=False)

    def forward(
        self, unit: Tensor, graph: Tensor, devices: Tensor, pair: Tensor, context: Tensor, mask: Tensor
    ) -> Tensor:
        """Logits `[R, D]` of `R` units; minus infinity, for probability 0, where `mask` is false.

        `unit` `[R, H]` and `graph` `[R, H]` are embeddings, `devices` `[D, F]`, `pair` `[R, D, F]`, `context` `[R, F]`, `mask` `[R, D]`.
        """
        pair, context = pair[..., : self.num_pair], context[..., : self.num_context] * self.seen_context
        of_unit = self.unit(torch.cat([unit, context], dim=-1)) + self.graph(graph)
        linear_weight, pair_weight, device_weight = self._pair_weights()
        # In place, since at R = 500 and D = 8 fresh memory costs as much as the arithmetic.
        hidden = nn.functional.linear(pair, pair_weight).add_(nn.functional.linear(devices, device_weight))
        hidden = hidden.add_(of_unit[:, None, :]).relu_()
        logits: Tensor = (nn.functional.linear(pair, linear_weight) + self.score(hidden)).squeeze(-1)
        return logits.masked_fill(~mask, -torch.inf)

    def parts(self, units: Tensor, devices: Tensor) -> HeadParts:
        """The parts for the compiled head, from embeddings `[U, H]` of all units and features `[D, F]` of the devices."""
        unit_weight, context_weight = torch.tensor_split(self.unit.weight, [units.shape[-1]], dim=1)
        linear_weight, pair_weight, device_weight = self._pair_weights()
        of_units = nn.functional.linear(units, unit_weight, self.unit.bias) + self.graph(units.mean(dim=0))
        parts = (
            linear_weight[0], pair_weight.T, (context_weight * self.seen_context).T, self.score.weight[0], of_units,
            devices @ device_weight.T,
        )  # fmt: skip
        return HeadParts(*(np.ascontiguousarray(part.detach().numpy()) for part in parts))

    def _pair_weights(self) -> tuple[Tensor, Tensor, Tensor]:
        """The linear weights, and the layer over [pair, device] in two parts, as devices are the same for all units."""
        pair_weight, device_weight = torch.tensor_split(self.pair.weight, [self.num_pair], dim=1)
        return self.linear.weight * self.seen_pair, pair_weight * self.seen_pair, device_weight


@dataclass(frozen=True)
class PolicyConfig:
    """The shape of the network, and the inputs that it may use."""

    hidden: int = 32
    """`H`, width of an embedding; Placeto (Addanki et al. 2019) has 16k to 55k parameters in all."""
    rounds: int = 3
    """Rounds of messages, each in both directions."""
    type_width: int = 8
    """Width of the embedding of an op type."""
    decision_width: int = 64
    """Width of the first hidden layer of the head that decides, the second has half of it; 0: the policy only scores moves."""
    budget_features: bool = True
    """False: the remaining budget and shared resources are not among the features of moves, as where one model is executed to train."""
    message_passing: bool = True
    """False, for ablation: no rounds; an embedding depends on the unit's own features alone."""
    device_features: bool = True
    """False, for ablation: the features of devices are 0; pair features still differ between devices."""
    schedule_features: bool = True
    """False, for ablation: features that name times of a schedule are 0, so that decisions follow from the graph, the devices and
    the decisions before them."""


@dataclass(frozen=True, eq=False)
class CandidateMoves:
    """`R` units of which the policy scores every device: `units[r]` in placement `rows[r]`."""

    rows: Tensor  # [R]
    units: Tensor  # [R]
    pair: Tensor  # [R, D, F]
    context: Tensor  # [R, F]
    mask: Tensor  # [R, D] true where the unit may go


@dataclass(frozen=True, eq=False)
class Decisions:
    """`R` decisions of the policy, with the features that it saw."""

    rows: Tensor  # [R] number of the encoding
    units: Tensor  # [R]
    pair: Tensor  # [R, D, F]
    context: Tensor  # [R, C]
    mask: Tensor  # [R, D] true where the unit may run
    chosen: Tensor  # [R] the device


@dataclass(frozen=True, eq=False)
class PolicyInputs:
    """Static inputs of the network for one problem."""

    tables: UnitTables
    features: GraphFeatures
    messages: MessagePassing
    type_buckets: Tensor  # [U]
    devices: Tensor  # [D, F]


@lru_cache(maxsize=2)  # starts and search of one problem need the same
def policy_inputs(problem: Problem, with_dgl: bool = HAS_DGL) -> PolicyInputs:
    """The static inputs of a problem; messages pass through DGL where it is installed, else through plain torch."""
    tables = unit_tables(problem)
    features = graph_features(problem, tables)
    ends = torch.tensor(features.ends)
    messages = dgl_messages(to_dgl(problem, features)) if with_dgl else torch_messages(ends, problem.num_units)
    return PolicyInputs(
        tables, features, messages, torch.from_numpy(features.type_buckets), torch.from_numpy(features.devices)
    )


class PolicyParts(NamedTuple):
    """A policy for compiled code, from one encoding of the graph."""

    moves: HeadParts
    """Scores of single moves from a complete placement."""
    decisions: DecisionParts
    """Decisions while a schedule is built or a part of one is decided anew."""


class PolicyNetwork(nn.Module):
    """Encoder, the head that scores moves, and the head that decides."""

    def __init__(self, config: PolicyConfig = PolicyConfig()) -> None:
        super().__init__()
        self.config = config
        self.encoder = MessagePassingEncoder(
            config.hidden, config.rounds if config.message_passing else 0, config.type_width
        )
        fewer = 0 if config.budget_features else 1  # the last one of each
        sees_schedules = config.schedule_features
        self.head = PairHead(config.hidden, len(PAIR) - fewer, len(CONTEXT) - fewer, sees_schedules)
        self.decides = config.decision_width > 0
        """It can build schedules; policies that cannot only score moves."""
        if self.decides:
            second = max(1, config.decision_width // 2)
            self.decisions = DecisionHead(config.hidden, config.decision_width, second, sees_schedules)

    def encode(self, inputs: PolicyInputs, nodes: Tensor, edges: Tensor) -> Tensor:
        """Embeddings `[U, B, H]` from the node and edge features of `features.sweep_features`."""
        if not self.config.schedule_features:
            nodes = nodes * torch.from_numpy(seen_columns(NODE_FEATURES, SCHEDULE_NODE_FEATURES, False))
            edges = edges * torch.from_numpy(seen_columns(EDGE_FEATURES, SCHEDULE_EDGE_FEATURES, False))
        embeddings: Tensor = self.encoder(inputs.messages, inputs.type_buckets, nodes, edges)
        return embeddings

    def logits(self, inputs: PolicyInputs, embeddings: Tensor, moves: CandidateMoves) -> Tensor:
        """Masked logits `[R, D]` from the embeddings `[U, B, H]` of `encode`."""
        unit = embeddings[moves.units, moves.rows]
        graph = embeddings.mean(dim=0)[moves.rows]
        logits: Tensor = self.head(unit, graph, self._devices(inputs), moves.pair, moves.context, moves.mask)
        return logits

    def decision_logits(self, inputs: PolicyInputs, embeddings: Tensor, decisions: Decisions) -> Tensor:
        """Masked logits `[R, D]` of decisions from the embeddings `[U, B, H]` of `encode`."""
        unit = embeddings[decisions.units, decisions.rows]
        graph = embeddings.mean(dim=0)[decisions.rows]
        logits: Tensor = self.decisions(
            unit, graph, self._devices(inputs), decisions.pair, decisions.context, decisions.mask
        )
        return logits

    def parts(self, inputs: PolicyInputs, nodes: Tensor, edges: Tensor) -> PolicyParts:
        """The policy for compiled code, from features `[U, 1, F]` and `[E, 1, F]` of one placement; see `sweep_features`."""
        embeddings, devices = self.encode(inputs, nodes, edges)[:, 0], self._devices(inputs)
        decisions = self.decisions.parts(embeddings, devices) if self.decides else no_decisions()
        return PolicyParts(self.head.parts(embeddings, devices), decisions)

    def _devices(self, inputs: PolicyInputs) -> Tensor:
        """`[D, F]` features of the devices; zeros where the configuration leaves them out."""
        return inputs.devices if self.config.device_features else torch.zeros_like(inputs.devices)


def build_policy(seed: int, config: PolicyConfig = PolicyConfig()) -> PolicyNetwork:
    """A fresh network whose weights follow from the seed."""
    with seeded(seed):
        return PolicyNetwork(config)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds torch's generator within the block; afterwards the generator is as it was before."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


class _OneThread:
    """Blocks that run torch on one thread. Torch's setting belongs to the process, so the last block restores it."""

    def __init__(self) -> None:
        self._lock, self._blocks, self._before = threading.Lock(), 0, 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._blocks:
                self._before = torch.get_num_threads()
                torch.set_num_threads(1)
            self._blocks += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._blocks -= 1
            if not self._blocks:
                torch.set_num_threads(self._before)


_ONE_THREAD = _OneThread()


def one_thread() -> AbstractContextManager[None]:
    """Runs torch on one thread within the block: with tensors this small, waking other threads costs more than it saves."""
    return _ONE_THREAD

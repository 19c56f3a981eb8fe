"""The head that decides on which device a unit runs, while a schedule is built or a part of one is decided anew.

`DECISION` and `DECISION_CONTEXT` define each feature once: the field's name is the feature's name and its position is the
column. The features of `pair_features`, of the complete schedule that is being revised, follow those of `DECISION`; they are 0
where a schedule is built from nothing.
"""

from collections import namedtuple
from typing import NamedTuple

import numpy as np
import torch
from numba import njit
from torch import Tensor, nn

from gnnplace.arrays import BoolArray, Float32Array, FloatArray
from gnnplace.policy.features import DEVICE_FEATURES, seen_columns
from gnnplace.policy.pair_features import PAIR, SCHEDULE_PAIR

# Of a unit on a device in the partial schedule: whether its first op ends first there, also with 3 and 12 times the transfers;
# transfers and shares of the unit's bytes; the longest path through it; the device's load, memory and what runs there already.
# `needed_share` is the part of the device's memory that the unit needs, `capacity` that memory as a share of the model's need.
_DecisionColumns = namedtuple(
    "_DecisionColumns",
    "end_gap ends_first ends_first_3 ends_first_12 wait ready_gap slowdown time input_transfer inputs_there latest_there path "
    "path_growth load load_after idle memory_after fits coparents ancestors output_transfer outputs_there was_here "
    "load_before last exclusive needed_share capacity",
)
# Of the decision on any device; `budget` is about the number of samples of which the best counts. `pressure` is the model's need
# of memory as a share of all scarce memory, `room` what undecided units need as a share of what is still free there.
_ContextColumns = namedtuple(
    "_ContextColumns",
    "progress urgency in_degree out_degree time gap pressure devices transfer_to_compute transfer throughput revises slack "
    "budget size delay free_share room",
)

DECISION = _DecisionColumns(*range(len(_DecisionColumns._fields)))
DECISION_CONTEXT = _ContextColumns(*range(len(_ContextColumns._fields)))
DECISION_INPUTS = len(DECISION) + len(PAIR)
"""Number of features of a unit on a device: of the partial schedule, then of the complete one."""
SCHEDULE_DECISION = frozenset(
    {
        "end_gap", "ends_first", "ends_first_3", "ends_first_12", "wait", "ready_gap", "latest_there", "path", "path_growth", "idle",
        "load_before",
    }
)  # fmt: skip
SCHEDULE_DECISION_CONTEXT = frozenset({"urgency", "gap", "slack", "delay"})
"""Features that name times of a schedule, or shares of its makespan; the others follow from the decisions before, the graph and the devices alone."""


class DecisionParts(NamedTuple):
    """The head for compiled code: its weights, and the terms of units and devices that no decision changes."""

    pair: Float32Array  # [F, H1]
    context: Float32Array  # [C, H1]
    units: Float32Array  # [U, H1]
    devices: Float32Array  # [D, H1]
    second: Float32Array  # [H1, H2]
    second_bias: Float32Array  # [H2]
    score: Float32Array  # [H2]


class DecisionHead(nn.Module):
    """A score per device for one unit, of two hidden layers; all weights begin random."""

    seen_pair: Tensor
    seen_context: Tensor

    def __init__(self, hidden: int, first: int, second: int, sees_schedules: bool = True) -> None:
        """Without `sees_schedules`, features that name times of a schedule count as 0."""
        super().__init__()
        decision = seen_columns(DECISION._fields, SCHEDULE_DECISION, sees_schedules)
        pair = seen_columns(PAIR._fields, SCHEDULE_PAIR, sees_schedules)
        context = seen_columns(DECISION_CONTEXT._fields, SCHEDULE_DECISION_CONTEXT, sees_schedules)
        self.register_buffer("seen_pair", torch.tensor(np.concatenate([decision, pair])), persistent=False)
        self.register_buffer("seen_context", torch.tensor(context), persistent=False)
        self.unit = nn.Linear(hidden, first)
        self.graph = nn.Linear(hidden, first, bias=False)
        self.device = nn.Linear(len(DEVICE_FEATURES), first, bias=False)
        self.pair = nn.Linear(DECISION_INPUTS, first, bias=False)
        self.context = nn.Linear(len(DECISION_CONTEXT), first, bias=False)
        self.second = nn.Linear(first, second)
        self.score = nn.Linear(second, 1, bias=False)

    def forward(
        self, unit: Tensor, graph: Tensor, devices: Tensor, pair: Tensor, context: Tensor, mask: Tensor
    ) -> Tensor:
        """Logits `[R, D]` of `R` decisions; minus infinity where `mask` is false.

        `unit` `[R, H]` and `graph` `[R, H]` are embeddings, `devices` `[D, F]`, `pair` `[R, D, F]`, `context` `[R, C]`.
        """
        pair_weight, context_weight = self._seen_weights()
        shared = self.unit(unit) + self.graph(graph) + nn.functional.linear(context, context_weight)
        of_pairs = nn.functional.linear(pair, pair_weight) + self.device(devices)
        hidden = torch.relu(of_pairs + shared[:, None, :])
        logits: Tensor = self.score(torch.relu(self.second(hidden))).squeeze(-1)
        return logits.masked_fill(~mask, -torch.inf)

    def parts(self, units: Tensor, devices: Tensor) -> DecisionParts:
        """The parts for compiled code, from embeddings `[U, H]` of all units and features `[D, F]` of the devices."""
        pair_weight, context_weight = self._seen_weights()
        parts = (
            pair_weight.T, context_weight.T, self.unit(units) + self.graph(units.mean(dim=0)),
            self.device(devices), self.second.weight.T, self.second.bias, self.score.weight[0],
        )  # fmt: skip
        return DecisionParts(*(np.ascontiguousarray(part.detach().numpy()) for part in parts))

    def _seen_weights(self) -> tuple[Tensor, Tensor]:
        """The weights of pair and context features, 0 for features that the policy does not see."""
        return self.pair.weight * self.seen_pair, self.context.weight * self.seen_context


def no_decisions() -> DecisionParts:
    """The parts of a policy that makes no decisions; compiled code does not read them."""
    line, table = np.zeros(1, dtype=np.float32), np.zeros((1, 1), dtype=np.float32)
    return DecisionParts(table, table, table, table, table, line, line)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=True)
def decision_scores(
    parts: DecisionParts,
    unit: int,
    pair: Float32Array,
    context: Float32Array,
    mask: BoolArray,
    hidden: Float32Array,
    last: Float32Array,
    scores: FloatArray,
) -> None:
    """Writes the logits `[D]` of one decision, up to rounding those of `DecisionHead.forward`, where `mask` is true.

    `pair` is `[D, F]`, `context` `[C]`; `hidden` `[2, H1]` and `last` `[H2]` are scratch.
    """
    shared, first = hidden[0], hidden[1]
    for index in range(len(shared)):
        shared[index] = parts.units[unit, index]
    for column in range(len(context)):
        for index in range(len(shared)):
            shared[index] += context[column] * parts.context[column, index]
    for device in range(len(mask)):
        if not mask[device]:
            continue
        for index in range(len(shared)):
            first[index] = shared[index] + parts.devices[device, index]
        for column in range(pair.shape[1]):
            value = pair[device, column]
            if value != 0.0:
                for index in range(len(first)):
                    first[index] += value * parts.pair[column, index]
        for other in range(len(last)):
            last[other] = parts.second_bias[other]
        for index in range(len(first)):
            value = first[index]
            if value > 0.0:
                for other in range(len(last)):
                    last[other] += value * parts.second[index, other]
        total = np.float32(0.0)
        for other in range(len(last)):
            total += max(np.float32(0.0), last[other]) * parts.score[other]
        scores[device] = total

"""The head that builds a placement: scores of the devices for the next unit of a list schedule, given the partial schedule.

`BUILD` and `BUILD_CONTEXT` define each feature once, as `pair_features` does; the compiled loop that computes them is
`gnnplace.planners.gnn.build`.
"""

from collections import namedtuple
from typing import NamedTuple

import numpy as np
import torch
from numba import njit
from torch import Tensor, nn

from gnnplace.arrays import BoolArray, Float32Array
from gnnplace.policy.features import DEVICE_FEATURES

# Of a unit on a device; and of a unit on any device, the last ones being the settings of the schedule.
_BuildColumns = namedtuple(
    "_BuildColumns",
    "finish first start ready wait slowdown seconds bring bring_change inputs_there segment latest_there first_near first_nearest "
    "path load idle work_share memory_after fits co_inputs ancestors outputs_there send excludes same_as_last",
)
_ContextColumns = namedtuple(
    "_ContextColumns",
    "progress work_left urgency gap memory_pressure inputs input_devices devices exclusive throughput "
    "transfer_factor channels memory_share depth_first",
)

BUILD = _BuildColumns(*range(len(_BuildColumns._fields)))
BUILD_CONTEXT = _ContextColumns(*range(len(_ContextColumns._fields)))


class BuildParts(NamedTuple):
    """The weights of `BuildHead`, and its terms that the partial schedule does not change."""

    pair: Float32Array  # [F, H1]
    context: Float32Array  # [C, H1]
    units: Float32Array  # [U, H1] contributions of units to the first layer
    devices: Float32Array  # [D, H1] contributions of devices to the first layer
    hidden: Float32Array  # [H1, H2]
    hidden_bias: Float32Array  # [H2]
    score: Float32Array  # [H2]


class BuildHead(nn.Module):
    """A score per device for one unit: three layers over features of the partial schedule, the unit's embedding and the device."""

    def __init__(self, embedding: int, hidden: tuple[int, int]) -> None:
        super().__init__()
        first, second = hidden
        self.unit = nn.Linear(embedding, first)
        self.context = nn.Linear(len(BUILD_CONTEXT), first, bias=False)
        self.device = nn.Linear(len(DEVICE_FEATURES), first, bias=False)
        self.pair = nn.Linear(len(BUILD), first, bias=False)
        self.hidden = nn.Linear(first, second)
        self.score = nn.Linear(second, 1, bias=False)

    def forward(self, units: Tensor, devices: Tensor, pair: Tensor, context: Tensor, mask: Tensor) -> Tensor:
        """Logits `[R, D]` of `R` decisions; minus infinity where `mask` is false.

        `units` `[R, H]` are embeddings, `devices` `[D, F]`, `pair` `[R, D, F]`, `context` `[R, C]`, `mask` `[R, D]`.
        """
        of_unit = self.unit(units) + self.context(context)
        first = torch.relu(self.pair(pair) + self.device(devices) + of_unit[:, None, :])
        logits: Tensor = self.score(torch.relu(self.hidden(first))).squeeze(-1)
        return logits.masked_fill(~mask, -torch.inf)

    def parts(self, units: Tensor, devices: Tensor) -> BuildParts:
        """The parts for the compiled loop, from embeddings `[U, H]` of all units and features `[D, F]` of the devices."""
        parts = (
            self.pair.weight.T, self.context.weight.T, self.unit(units), self.device(devices),
            self.hidden.weight.T, self.hidden.bias, self.score.weight[0],
        )  # fmt: skip
        return BuildParts(*(np.ascontiguousarray(part.detach().numpy()) for part in parts))


@njit(cache=True, nogil=True, fastmath=True)
def build_scores(
    parts: BuildParts, unit: int, pair: Float32Array, context: Float32Array, mask: BoolArray, out: Float32Array
) -> None:
    """Writes the logits `[D]` of `BuildHead.forward` for one unit, up to rounding; minus infinity where `mask` `[D]` is false."""
    of_unit = parts.units[unit].copy()
    for index in range(len(context)):
        if context[index] != 0.0:
            of_unit += context[index] * parts.context[index]
    for device in range(len(out)):
        if not mask[device]:
            out[device] = -np.inf
            continue
        first = of_unit + parts.devices[device]
        for index in range(pair.shape[1]):
            value = pair[device, index]
            if value != 0.0:
                for column in range(len(first)):
                    first[column] += value * parts.pair[index, column]
        second = parts.hidden_bias.copy()
        for index in range(len(first)):
            value = first[index]
            if value > 0.0:
                for column in range(len(second)):
                    second[column] += value * parts.hidden[index, column]
        total = np.float32(0.0)
        for index in range(len(second)):
            total += max(np.float32(0.0), second[index]) * parts.score[index]
        out[device] = total

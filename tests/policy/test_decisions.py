"""The head that decides, compiled and in torch."""

import numpy as np
import pytest
import torch

from gnnplace.policy.decisions import (
    DECISION,
    DECISION_CONTEXT,
    DECISION_INPUTS,
    SCHEDULE_DECISION,
    SCHEDULE_DECISION_CONTEXT,
    DecisionHead,
    decision_scores,
)
from gnnplace.policy.features import DEVICE_FEATURES


@pytest.mark.parametrize("sees_schedules", [True, False])
def test_the_compiled_head_gives_the_logits_of_torch_where_the_mask_allows(sees_schedules: bool) -> None:
    torch.manual_seed(0)
    head = DecisionHead(6, 10, 5, sees_schedules)
    units, devices = torch.randn(7, 6), torch.randn(4, len(DEVICE_FEATURES))
    pair, context = torch.randn(3, 4, DECISION_INPUTS), torch.randn(3, len(DECISION_CONTEXT))
    mask, rows = torch.rand(3, 4) < 0.7, torch.tensor([5, 0, 2])
    mask[0] = True
    graph = units.mean(dim=0).expand(3, -1)
    with torch.no_grad():
        expected = head(units[rows], graph, devices, pair, context, mask).numpy()
    assert (np.isneginf(expected) == ~mask.numpy()).all()
    parts = head.parts(units, devices)
    hidden, last = np.zeros((2, 10), dtype=np.float32), np.zeros(5, dtype=np.float32)
    for row, unit in enumerate(rows.tolist()):
        scores = np.full(4, 9.0)
        allowed = mask[row].numpy()
        decision_scores(parts, unit, pair[row].numpy(), context[row].numpy(), allowed, hidden, last, scores)
        np.testing.assert_allclose(scores[allowed], expected[row][allowed], rtol=1e-4, atol=1e-5)
        assert (scores[~allowed] == 9.0).all()


@pytest.mark.parametrize("sees_schedules", [True, False])
def test_only_a_head_that_sees_schedules_reads_their_times(sees_schedules: bool) -> None:
    torch.manual_seed(0)
    head = DecisionHead(6, 10, 5, sees_schedules)
    unit, devices, mask = torch.randn(3, 6), torch.randn(4, len(DEVICE_FEATURES)), torch.ones(3, 4, dtype=torch.bool)
    pair, context = torch.randn(3, 4, DECISION_INPUTS), torch.randn(3, len(DECISION_CONTEXT))
    before = head(unit, unit, devices, pair, context, mask)
    times, others = pair.clone(), pair.clone()
    times[..., [DECISION._fields.index(name) for name in SCHEDULE_DECISION]] += 1.0
    others[..., DECISION.load] += torch.arange(4.0)
    moments = context.clone()
    moments[..., [DECISION_CONTEXT._fields.index(name) for name in SCHEDULE_DECISION_CONTEXT]] += 1.0
    assert torch.equal(head(unit, unit, devices, times, moments, mask), before) is not sees_schedules
    assert not torch.equal(head(unit, unit, devices, others, context, mask), before)

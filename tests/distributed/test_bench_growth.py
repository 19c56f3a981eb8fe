"""A driver and many hosts, simulated with costs of messages that are round numbers."""

from __future__ import annotations

import pytest

from gnnplace.distributed.bench.costs import MessageCosts
from gnnplace.distributed.bench.growth import grown, saturating_hosts

COSTS = MessageCosts(
    round_trip_s=0.002,
    item_s=0.001,
    driver_cpu_s=0.001,
    ray_cpu_s=0.0,
    bytes_per_item=1000.0,
    bytes_per_payload_byte=1.0,
    packets_per_item=2.0,
    wait_s=0.0,
    wait_each_s=0.0,
)


def test_one_worker_takes_an_evaluation_and_a_round_trip_for_each() -> None:
    growth = grown(COSTS, workers=1, batch=1, evaluation_s=0.048, row_bytes=512)
    assert growth.evaluations_per_s == pytest.approx(1 / 0.05)
    assert growth.efficiency == pytest.approx(0.048 / 0.05)
    assert growth.driver_busy == pytest.approx(0.001 / 0.05)
    assert growth.messages_per_s == pytest.approx(2 / 0.05)
    assert growth.network_bytes_per_s == pytest.approx((1000 + 512) / 0.05)
    assert growth.driver_s_per_evaluation == pytest.approx(0.001)


def test_more_workers_than_the_driver_has_time_for_give_no_more() -> None:
    few, many = (grown(COSTS, workers, 1, 0.05, 512) for workers in (500, 1000))
    assert [few.driver_busy, many.driver_busy] == pytest.approx([1.0, 1.0])
    assert [few.evaluations_per_s, many.evaluations_per_s] == pytest.approx([1000.0, 1000.0])
    assert saturating_hosts(COSTS, 1, 0.05) == 50


def test_several_evaluations_in_one_message_bring_the_driver_back() -> None:
    growth = grown(COSTS, workers=1000, batch=64, evaluation_s=0.05, row_bytes=512)
    assert growth.efficiency > 0.99
    assert growth.driver_s_per_evaluation == pytest.approx(0.001 / 64)
    assert saturating_hosts(COSTS, 64, 0.05) == 3200


def test_what_each_item_that_is_out_costs_is_paid_at_every_turn() -> None:
    costs = MessageCosts(**{**vars(COSTS), "wait_each_s": 0.01})
    assert grown(costs, 1, 1, 0.037, 0).evaluations_per_s == pytest.approx(1 / (0.037 + 0.002 + 0.01))

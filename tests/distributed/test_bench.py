"""The bench of Ray: the throughput of many hosts by costs of messages, and a placed model over two hosts."""

from dataclasses import replace

import pytest

from gnnplace.distributed.bench import suite
from gnnplace.distributed.bench.costs import MessageCosts
from gnnplace.distributed.bench.suite import grown
from gnnplace.distributed.raylets import LocalCluster
from gnnplace.measuring.timing import StoppingRule

COSTS = MessageCosts(
    round_trip_s=0.002, item_s=0.001, driver_cpu_s=0.001, ray_cpu_s=0.0, bytes_per_item=1000.0,
    bytes_per_payload_byte=1.0, packets_per_item=2.0, wait_s=0.0, wait_each_s=0.0,
)  # fmt: skip


def test_an_item_of_a_single_host_lasts_an_evaluation_and_a_round_trip() -> None:
    growth = grown(COSTS, hosts=1, batch=1, evaluation_s=0.048, row_bytes=512)
    assert growth == pytest.approx(
        {
            "hosts": 1, "batch": 1, "evaluations_per_s": 1 / 0.05, "efficiency": 0.048 / 0.05,
            "driver_busy": 0.001 / 0.05, "messages_per_s": 2 / 0.05, "network_bytes_per_s": (1000 + 512) / 0.05,
            "driver_s_per_evaluation": 0.001,
        }
    )  # fmt: skip


def test_more_hosts_than_the_driver_has_time_for_add_no_throughput() -> None:
    few, many = (grown(COSTS, hosts, 1, 0.05, 512) for hosts in (500, 1000))
    assert [few["driver_busy"], many["driver_busy"]] == pytest.approx([1.0, 1.0])
    assert [few["evaluations_per_s"], many["evaluations_per_s"]] == pytest.approx([1000.0, 1000.0])


def test_several_evaluations_per_message_relieve_the_driver() -> None:
    growth = grown(COSTS, hosts=1000, batch=64, evaluation_s=0.05, row_bytes=512)
    assert growth["efficiency"] > 0.99
    assert growth["driver_s_per_evaluation"] == pytest.approx(0.001 / 64)


def test_every_turn_of_the_driver_costs_time_for_each_running_item() -> None:
    costs = replace(COSTS, wait_each_s=0.01)
    assert grown(costs, 1, 1, 0.037, 0)["evaluations_per_s"] == pytest.approx(1 / (0.037 + 0.002 + 0.01))


def test_a_zoo_model_over_two_hosts_gives_the_outputs_of_the_local_session(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rule in ("_RULE", "_PIPELINED_RULE"):
        monkeypatch.setattr(suite, rule, StoppingRule(warmup=0, min_repeats=1, max_repeats=1))
    monkeypatch.setattr(suite, "MODELS", ("squeezenet",))
    lines: list[str] = []
    found = suite.measured_sessions(cluster.address, 0, lines.append)
    assert [line.split(",")[0] for line in lines] == list(found["models"]) == ["squeezenet"]
    assert found["latency_s"] > 0
    row = found["models"]["squeezenet"]
    assert row["largest_difference"] == {"local": 0.0, "one_host": 0.0, "two_hosts": 0.0}
    assert min(*row["alone_s"].values(), *row["pipelined_s"].values()) > 0

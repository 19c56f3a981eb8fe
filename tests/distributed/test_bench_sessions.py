"""What `gnnplace bench ray` says of a placed model over two hosts."""

from __future__ import annotations

import pytest

from gnnplace.distributed.bench import sessions
from gnnplace.distributed.raylets import LocalCluster
from gnnplace.measuring.timing import StoppingRule

ONCE = StoppingRule(warmup=0, min_repeats=1, max_repeats=1)


def test_a_zoo_model_over_two_hosts_gives_the_outputs_of_the_local_session(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rule in ("_RULE", "_PIPELINED_RULE"):
        monkeypatch.setattr(sessions, rule, ONCE)
    lines: list[str] = []
    found = sessions.measured_sessions(cluster.address, 0, lines.append)
    assert [line.split(",")[0] for line in lines] == list(found["models"]) == list(sessions.MODELS)
    assert found["latency_s"] > 0
    for row in found["models"].values():
        assert row["largest_difference"] == {"local": 0.0, "one_host": 0.0, "two_hosts": 0.0}
        assert min(*row["alone_s"].values(), *row["pipelined_s"].values()) > 0

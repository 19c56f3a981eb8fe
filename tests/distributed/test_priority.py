"""Processes of Ray work with the priority of any other program."""

from __future__ import annotations

import os
from typing import Any

import pytest

from gnnplace.distributed.calls import called_on_all
from gnnplace.distributed.cluster import nodes


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may raise a priority")
def test_what_is_called_on_a_host_does_not_yield_to_other_work(cluster: Any) -> None:
    import ray

    assert ray.get(ray.remote(niceness).options(num_cpus=0).remote()) > 0
    assert called_on_all([(node, niceness, ()) for node in nodes()]) == [0, 0]

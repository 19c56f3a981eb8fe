"""Training over the hosts of a cluster reaches the weights of a run on one machine, even if a process is killed."""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from gnnplace.api.training_run import RunFiles, train
from gnnplace.distributed.cluster import Node
from gnnplace.distributed.plugin import RayHosts
from gnnplace.distributed.training import _turns
from gnnplace.errors import GnnplaceError, ProcessLost
from gnnplace.files import read_json_lines
from gnnplace.training.data_parallel import RunControl, train_data_parallel
from gnnplace.training.run_state import read_state
from tests.api.test_training_run import TINY
from tests.training.test_data_parallel import QUICK, TASK, begun, weights


def kill_a_rank() -> None:
    """One of the actors that train."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has just ended
            if "RankActor" in " ".join(process.cmdline()):
                process.kill()
                return
    raise AssertionError("no actor trains")


def test_a_killed_rank_ends_the_run_with_one_line_and_leaves_its_last_state(cluster: Any, tmp_path: Path) -> None:
    config = replace(QUICK, num_processes=2, save_every=1)
    path, on_hosts = begun(tmp_path / "killed"), RunControl(start_group=RayHosts(cluster.address).process_group())
    with pytest.raises(ProcessLost, match=r"ended .*continue with --resume"):
        train_data_parallel(
            path, TASK, config, lambda row: kill_a_rank() if row["update"] == 1 else None, lambda _: None, on_hosts
        )
    assert 1 <= read_state(path).update <= 2


def test_a_run_on_hosts_continues_by_itself_after_a_rank_is_killed_and_has_the_problems_and_weights_of_local_processes(
    cluster: Any, tmp_path: Path
) -> None:
    training = replace(TINY.training, save_every=1, ppo=replace(TINY.training.ppo, num_updates=3))
    settings = replace(TINY, training=training)
    warnings: list[str] = []
    train(tmp_path / "whole", settings)
    killed: list[int] = []

    def kill_once(row: Mapping[str, Any]) -> None:
        if row["update"] == 1 and not killed:
            killed.append(1)
            kill_a_rank()

    train(tmp_path / "killed", settings, ray=cluster.address, on_update=kill_once, on_warning=warnings.append)
    whole, after = (read_state(RunFiles(tmp_path / name).state) for name in ("whole", "killed"))
    assert torch.equal(weights(whole), weights(after))
    assert len(warnings) == 1
    assert "the run continues by itself from update" in warnings[0]
    here, hosts = (read_json_lines(RunFiles(tmp_path / name).metrics, GnnplaceError) for name in ("whole", "killed"))
    assert [row["update"] for row in hosts] == [0, 1, 2]
    names = [[[fact["name"] for fact in row["problems"]] for row in rows] for rows in (here, hosts)]
    assert [len(row) for row in names[0]] == [0, 2, 2]  # of each rank; the first update imitates
    assert names[0] == names[1]


def test_ranks_go_to_hosts_by_their_cores_and_the_driver_counts_for_its_own() -> None:
    found = [Node("a", "A", 1, 0), Node("b", "B", 3, 0)]
    assert Counter(node.name for node in _turns(found, "A", 7)) == {"a": 1, "b": 6}


def test_the_cores_of_all_hosts_are_counted(cluster: Any) -> None:
    assert RayHosts(cluster.address).num_cores() == 2

"""Whatever becomes of workers and hosts, every item has its one result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gnnplace.distributed.pool import Pool, PoolOptions, Tally
from gnnplace.distributed.workers import Role, WorkerOptions
from gnnplace.errors import GnnplaceError, MeasurementFailed, ProcessLost
from tests.distributed.work import marks, worker

pytestmark = pytest.mark.usefixtures("cluster")


def balanced(tally: Tally) -> bool:
    """Nothing that was handed out is without an end."""
    return tally.handed_out == tally.counted + tally.dropped + tally.lost + tally.hung


def outcome(folder: Path, items: Sequence[str], options: PoolOptions = PoolOptions()) -> tuple[list[str], Tally]:
    """Values or failures in the order of the items, each of which must be there once."""
    with Pool[str, str](Role(worker, (folder,)), options) as pool:
        done = list(pool.results(items))
    assert sorted(one.index for one in done) == list(range(len(items)))
    return [one.value or one.failure for one in sorted(done, key=lambda one: one.index)], pool.tally


def test_results_are_in_the_order_of_the_items_and_both_hosts_work(tmp_path: Path) -> None:
    items = [f"sleeps {0.02 * (index % 3)}" for index in range(30)]
    with Pool[str, str](Role(worker, (tmp_path,))) as pool:
        pool.wait_ready()
        done = pool.map(items)
    assert [one.value for one in done] == [f"{item} done" for item in items]
    assert {one.host for one in done} == {"host1", "host2"}
    assert pool.tally == Tally(handed_out=30, counted=30)


def test_no_items_give_no_results(tmp_path: Path) -> None:
    assert outcome(tmp_path, []) == ([], Tally())


def test_an_item_whose_worker_is_killed_is_done_by_another(tmp_path: Path) -> None:
    options = PoolOptions(copy_after=1e9)  # a copy could end before the loss is known
    answers, tally = outcome(tmp_path, ["a", "dies_once", "b", "c"], options)
    assert answers == ["a done", "dies_once done", "b done", "c done"]
    assert (tally.counted, tally.lost, marks(tmp_path, "dies_once")) == (4, 1, 2)
    assert balanced(tally)


def test_an_item_that_kills_every_worker_has_failed_after_so_many_tries(tmp_path: Path) -> None:
    answers, tally = outcome(tmp_path, ["dies", "a", "b"], PoolOptions(tries=2))
    assert answers[0].startswith("its worker was lost, 2 times, the last time on host host")
    assert answers[1:] == ["a done", "b done"]
    assert (tally.counted, tally.lost, marks(tmp_path, "dies")) == (2, 2, 2)
    assert balanced(tally)


def test_an_item_that_hangs_has_failed_and_its_worker_is_replaced(tmp_path: Path) -> None:
    answers, tally = outcome(tmp_path, ["hangs", "a", "b", "sleeps 1.5"], PoolOptions(timeout_s=3.0, copy_after=1e9))
    assert answers[0].startswith("took longer than 3 s, on host host")
    assert answers[1:] == ["a done", "b done", "sleeps 1.5 done"]
    assert (tally.counted, tally.hung, marks(tmp_path, "hangs")) == (3, 1, 1)
    assert balanced(tally)


def test_an_item_that_hangs_once_is_tried_again_where_the_caller_wants_it(tmp_path: Path) -> None:
    options = PoolOptions(timeout_s=2.0, retry_hung=True, copy_after=1e9)
    answers, tally = outcome(tmp_path, ["hangs_once", "a"], options)
    assert answers == ["hangs_once done", "a done"]
    assert (tally.counted, tally.hung, marks(tmp_path, "hangs_once")) == (2, 1, 2)
    assert balanced(tally)


def test_a_straggler_is_overtaken_by_a_copy_and_counted_once(tmp_path: Path) -> None:
    items = ["slow_once", *["sleeps 0.1"] * 5]
    with Pool[str, str](Role(worker, (tmp_path,))) as pool:
        pool.wait_ready()
        answers = [one.value for one in pool.map(items)]
        assert answers == [f"{item} done" for item in items]
        assert marks(tmp_path, "slow_once") == 2
        assert pool.tally == Tally(handed_out=7, counted=6)  # the straggler still sleeps
        later = pool.map(["sleeps 3", "sleeps 3.5"])  # meanwhile the straggler answers
        assert [one.value for one in later] == ["sleeps 3 done", "sleeps 3.5 done"]
    assert pool.tally.dropped == 1
    assert pool.tally.counted == 8


def test_what_an_item_raises_is_raised(tmp_path: Path) -> None:
    with pytest.raises(MeasurementFailed, match=r"^this item cannot be done$"):
        outcome(tmp_path, ["a", "raises", "b"])


def test_the_items_of_a_host_that_is_lost_are_done_by_others(cluster: Any, third_host: Any, tmp_path: Path) -> None:
    items = [f"sleeps {0.3 + 0.001 * index}" for index in range(24)]
    with Pool[str, str](Role(worker, (tmp_path,))) as pool:
        pool.wait_ready()
        assert pool.hosts == ("host1", "host2", "host3")
        done = []
        for one in pool.results(items):
            done.append(one)
            if len(done) == 4:
                cluster.remove(third_host, at_once=True)
        assert pool.tally.counted == 24
        for _ in range(20):  # on a busy machine its item was given to another worker before the loss was noticed
            if pool.hosts == ("host1", "host2"):
                break
            pool.map(["sleeps 0.3"] * 4)
        assert pool.hosts == ("host1", "host2")
    assert sorted(one.index for one in done) == list(range(24))
    assert {one.value for one in done} == {f"{item} done" for item in items}
    assert pool.tally.lost >= 1


def test_a_host_that_joins_takes_part(cluster: Any, tmp_path: Path) -> None:
    added = None
    try:
        with Pool[str, str](Role(worker, (tmp_path,))) as pool:
            done = []
            for one in pool.results(["sleeps 0.25"] * 60):
                done.append(one)
                if added is None:
                    added = cluster.add("host9")
    finally:
        if added is not None:
            cluster.remove(added)
    assert {one.host for one in done} == {"host1", "host2", "host9"}
    assert sorted(one.index for one in done) == list(range(60))


def only_some(fingerprint: Mapping[str, Any]) -> str:
    return "of another kind"


def cannot_begin() -> None:
    raise MeasurementFailed("there is no such device")


def test_hosts_that_may_not_take_part_are_named_with_the_reason() -> None:
    told: list[str] = []
    with (
        Pool[str, str](Role(worker, (Path(),), only_some), on_warning=told.append) as pool,
        pytest.raises(GnnplaceError, match="no host of the cluster can take part") as error,
    ):
        pool.map(["a"])
    assert sorted(told) == [f"host host{number} takes no part: of another kind" for number in (1, 2)]
    assert "host2: of another kind" in str(error.value)


def test_a_host_on_which_no_worker_can_begin_is_set_aside_with_what_it_said() -> None:
    with Pool[str, str](Role(cannot_begin)) as pool, pytest.raises(GnnplaceError, match="there is no such device"):
        pool.wait_ready()
    assert pool.set_aside == dict.fromkeys(("host1", "host2"), "there is no such device")


def test_a_cluster_whose_cores_are_taken_is_no_endless_wait(tmp_path: Path) -> None:
    options = PoolOptions(WorkerOptions(begin_s=1.0))
    with Pool[str, str](Role(worker, (tmp_path,))) as first:
        first.wait_ready()
        with (
            Pool[str, str](Role(worker, (tmp_path,)), options) as second,
            pytest.raises(GnnplaceError, match="other work of the cluster may have its cores"),
        ):
            second.map(["a"])


def test_a_cluster_without_any_host_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnplace.distributed.workers.nodes", lambda: ())
    options = PoolOptions(WorkerOptions(patience_s=0.5))
    with Pool[str, str](Role(worker, (tmp_path,)), options) as pool, pytest.raises(ProcessLost, match="no host"):
        pool.map(["a"])

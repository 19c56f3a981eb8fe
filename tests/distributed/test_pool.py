"""Every item has exactly one result, even if workers and hosts are lost."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gnnplace.distributed.pool import Pool
from gnnplace.distributed.workers import PoolOptions, Role
from gnnplace.errors import GnnplaceError, MeasurementFailed, ProcessLost
from tests.distributed.work import marks, worker

pytestmark = pytest.mark.usefixtures("cluster")


def test_results_keep_the_order_of_the_items_both_hosts_work_and_the_error_of_an_item_is_raised(tmp_path: Path) -> None:
    items = [f"sleeps {0.02 * (index % 3)}" for index in range(30)]
    with Pool[str, str](Role(worker, (tmp_path,))) as pool:
        assert pool.map([]) == []
        pool.wait_ready()
        done = pool.map(items)
        assert pool.tally == {"dispatched": 30, "counted": 30}
        with pytest.raises(MeasurementFailed, match=r"^this item cannot be done$"):
            pool.map(["a", "raises", "b"])
    assert [one.value for one in done] == [f"{item} done" for item in items]
    assert {one.host for one in done} == {"host1", "host2"}


@pytest.mark.parametrize(
    ("words", "options", "failures", "faults"),
    [
        (
            ["dies_once", "dies"],
            PoolOptions(tries=2),
            {"dies": "its worker was lost, 2 times, the last time on host host"},
            {"lost": 3},
        ),
        (["hangs"], PoolOptions(tries=1, timeout_s=2.0), {"hangs": "took longer than 2 s, on host host"}, {"hung": 1}),
    ],
)
def test_an_item_that_costs_its_worker_is_repeated_until_it_has_failed_and_the_others_are_counted_once(
    words: list[str], options: PoolOptions, failures: dict[str, str], faults: dict[str, int], tmp_path: Path
) -> None:
    items = ["a", *words, "b", "sleeps 0.5"]
    options = replace(options, copy_after=1e9)  # a copy could end before a loss is known
    with Pool[str, str](Role(worker, (tmp_path,)), options) as pool:
        done = sorted(pool.results(items), key=lambda one: one.index)
    assert [one.index for one in done] == list(range(len(items)))
    assert [one.value for one in done] == [None if item in failures else f"{item} done" for item in items]
    for item, one in zip(items, done, strict=True):
        assert one.failure.startswith(failures.get(item, ""))
    counted = len(items) - len(failures)
    assert pool.tally == {"counted": counted, "dispatched": counted + sum(faults.values()), **faults}
    starts = {"dies_once": 2, "dies": 2, "hangs": 1}
    assert {word: marks(tmp_path, word) for word in words} == {word: starts[word] for word in words}


def test_a_straggler_is_overtaken_by_a_copy_and_counted_once(tmp_path: Path) -> None:
    items = ["slow_once", *["sleeps 0.1"] * 5]
    with Pool[str, str](Role(worker, (tmp_path,))) as pool:
        pool.wait_ready()
        assert [one.value for one in pool.map(items)] == [f"{item} done" for item in items]
        assert marks(tmp_path, "slow_once") == 2
        assert pool.tally == {"dispatched": 7, "counted": 6}  # the straggler still sleeps
        later = pool.map(["sleeps 2", "sleeps 2.5"])  # meanwhile the straggler answers
        assert [one.value for one in later] == ["sleeps 2 done", "sleeps 2.5 done"]
    assert (pool.tally["dropped"], pool.tally["counted"]) == (1, 8)


def test_other_hosts_run_the_items_of_a_lost_host(cluster: Any, third_host: Any, tmp_path: Path) -> None:
    items = [f"sleeps {0.3 + 0.001 * index}" for index in range(24)]
    with Pool[str, str](Role(worker, (tmp_path,))) as pool:
        pool.wait_ready()
        assert pool.hosts == ("host1", "host2", "host3")
        done = []
        for one in pool.results(items):
            done.append(one)
            if len(done) == 4:
                cluster.remove(third_host, at_once=True)
        assert pool.tally["counted"] == 24
        for _ in range(20):  # on a busy machine its item was given to another worker before the loss was noticed
            if pool.hosts == ("host1", "host2"):
                break
            pool.map(["sleeps 0.3"] * 4)
        assert pool.hosts == ("host1", "host2")
    assert sorted(one.index for one in done) == list(range(24))
    assert {one.value for one in done} == {f"{item} done" for item in items}
    assert pool.tally["lost"] >= 1


def test_a_host_that_joins_takes_part(cluster: Any, tmp_path: Path) -> None:
    added = None
    try:
        with Pool[str, str](Role(worker, (tmp_path,)), PoolOptions(copy_after=1e9)) as pool:
            pool.wait_ready()
            done = []
            for one in pool.results(["a", "until go", "until go", "go"]):  # both hosts wait until a third one goes
                done.append(one)
                if added is None:
                    added = cluster.add("host9")
    finally:
        if added is not None:
            cluster.remove(added)
    assert {one.index: one.value for one in done} == {0: "a done", 1: "until go done", 2: "until go done", 3: "go done"}
    assert {one.host for one in done if one.index in {1, 2}} == {"host1", "host2"}
    assert [one.host for one in done if one.index == 3] == ["host9"]


def cannot_begin() -> None:
    raise MeasurementFailed("there is no such device")


@pytest.mark.parametrize(
    ("role", "reason"),
    [
        (Role(worker, (Path(),), lambda fingerprint: "of another kind"), "of another kind"),
        (Role(cannot_begin), "there is no such device"),
    ],
)
def test_hosts_that_cannot_take_part_are_set_aside_with_the_reason(role: Role, reason: str) -> None:
    warnings: list[str] = []
    with Pool[str, str](role, on_warning=warnings.append) as pool:
        with pytest.raises(GnnplaceError, match=f"no host of the cluster can take part .*host2: {reason}"):
            pool.map(["a"])
        with pytest.raises(GnnplaceError, match="no host of the cluster can take part"):
            pool.wait_ready()
    assert sorted(warnings) == [f"host host{number} takes no part: {reason}" for number in (1, 2)]


def test_a_cluster_whose_cores_are_taken_is_an_error_in_bounded_time(tmp_path: Path) -> None:
    options = PoolOptions(begin_s=1.0)
    with Pool[str, str](Role(worker, (tmp_path,))) as first:
        first.wait_ready()
        with (
            Pool[str, str](Role(worker, (tmp_path,)), options) as second,
            pytest.raises(GnnplaceError, match="other work of the cluster may have its cores"),
        ):
            second.map(["a"])


def test_a_cluster_without_any_host_is_an_error_in_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnnplace.distributed.workers.nodes", lambda: ())
    options = PoolOptions(patience_s=0.5)
    with Pool[str, str](Role(worker, (tmp_path,)), options) as pool, pytest.raises(ProcessLost, match="no host"):
        pool.map(["a"])

"""Commands with `--ray` give the results of the same commands without it."""

from typing import Any

import pytest

from gnnplace.api import PlaceOptions, compare, place
from gnnplace.distributed.evaluators import HostsSimulator
from tests.cli.calls import Cli

pytestmark = pytest.mark.usefixtures("own_cache")
COMPARE = "compare zoo:layered_200 --devices k40x4 --evaluations 100 --seed 3 --planners"


def test_a_comparison_over_hosts_has_the_rows_of_a_local_one_in_the_requested_order(
    cluster: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    names = "gnn,single,annealing,heft,genetic"
    here = Cli(capsys).json(*COMPARE.split(), names)["rows"]
    there = Cli(capsys).json(*COMPARE.split(), names, "--ray", cluster.address)["rows"]
    assert [row["planner"] for row in there] == names.split(",")
    assert {row["host"] for row in there} <= {"host1", "host2"}
    facts = ("planner", "makespan_s", "gap", "evaluations", "feasible", "error")
    assert [[row[fact] for fact in facts] for row in there] == [[row[fact] for fact in facts] for row in here]


def test_the_table_names_the_host_of_each_planner(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (row,) = compare("zoo:layered_200", "k40x4", ["single"])
    monkeypatch.setattr("gnnplace.api.compare", lambda *_, **__: [{**row, "host": "host7"}])
    code, out, _ = Cli(capsys)(*COMPARE.split(), "single", "--ray", "10.0.0.1:6379")
    assert code == 0
    assert "host7" in out


def test_a_placement_whose_batches_go_to_hosts_equals_the_local_one(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = []
    evaluate_batch = HostsSimulator.evaluate_batch
    monkeypatch.setattr("gnnplace.distributed.evaluators._WORTH_OPS", 0)
    monkeypatch.setattr(
        HostsSimulator, "evaluate_batch", lambda self, rows: sent.append(len(rows)) or evaluate_batch(self, rows)
    )
    options = {"planner": "genetic", "evaluations": 200, "seed": 5}
    here = place("zoo:layered_200", "k40x4", PlaceOptions(**options))
    assert sent == []
    there = place("zoo:layered_200", "k40x4", PlaceOptions(**options, ray=cluster.address))
    assert sum(sent) >= 200
    assert there.placement.assignment.tolist() == here.placement.assignment.tolist()
    assert there.makespan_s == here.makespan_s


def test_an_address_without_a_cluster_is_an_error_of_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, errors = Cli(capsys)(*COMPARE.split(), "single", "--ray", "127.0.0.1:9")
    assert (code, out) == (2, "")
    assert "--ray 127.0.0.1:9:" in errors

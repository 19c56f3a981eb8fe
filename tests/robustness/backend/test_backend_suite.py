"""The suite of ONNX's own cases counts the cases that pass, and survives crashes."""

from dataclasses import asdict
from functools import partial
from typing import Any

import pytest

from gnnplace.bench.harness import BenchOptions
from gnnplace.errors import GnnplaceError, InvalidTopology, ProcessLost
from gnnplace.running.devices import parse_device
from tests.robustness.backend.cases import BackendCase
from tests.robustness.backend.compare import Outcome
from tests.robustness.backend.suite import Request, bench_backend, outcomes_of


def crashing(request: Request, plain_too: bool) -> dict[str, Any]:
    """A process that is lost with the plain session, or only when the parts run."""
    if request[2] or plain_too:
        raise ProcessLost("the process ended with signal SIGSEGV")
    return {"plain": asdict(Outcome("passes"))}


def test_a_crash_of_the_plain_session_differs_from_one_of_the_parts() -> None:
    case = BackendCase("case", "node", b"", (), 0.0, 0.0)
    found = outcomes_of(partial(crashing, plain_too=False), case, 0)
    assert (found["plain"]["verdict"], found["placed"]["verdict"]) == ("passes", "crashes")
    assert found["placed"]["reason"] == "the process ended with signal SIGSEGV"
    found = outcomes_of(partial(crashing, plain_too=True), case, 0)
    assert (found["plain"]["verdict"], found["placed"]["verdict"]) == ("crashes", "refuses")


def test_the_suite_counts_cases_by_family_and_lists_those_that_are_not_passed() -> None:
    try:
        parse_device("cpu:1")
    except InvalidTopology:
        pytest.skip("the machine has no second core")
    only = ("test_dft_axis_opset19", "test_softplus_example", "test_adagrad", "sequence_model1")
    lines: list[str] = []
    result = bench_backend(BenchOptions(only=only, on_progress=lines.append))
    rows = {(row["family"], row["travels"]): row for row in result.rows}
    assert rows.keys() == {("node", False), ("simple", False), ("node", True), ("simple", True)}
    counted = ("cases", "plain_loads", "plain_passes", "placed_passes", "agrees", "placed_fails", "cut", "several_ops")
    assert [rows["node", False][key] for key in counted] == [5, 3, 2, 2, 0, 0, 1, 1]
    assert [rows["node", True][key] for key in counted] == [2, 2, 2, 2, 0, 0, 2, 2]
    assert [rows["simple", False][key] for key in counted] == [1, 1, 1, 1, 0, 0, 1, 1]
    assert result.summary == {"plain_passes": 6, "placed_passes": 6, "agrees": 0, "placed_fails": 0, "breaks": 0}
    listed = result.details["plain_does_not_pass"]
    assert {name: reason.split(":")[0] for name, reason in listed.items()} == {
        "test_adagrad": "refuses", "test_adagrad_multiple": "refuses", "test_dft_axis_opset19": "differs",
    }  # fmt: skip
    assert result.details["placed_fails"] == {}
    assert lines == ["6 of 6 cases", "3 of 3 cases, travelling"]


def test_a_case_that_does_not_exist_is_refused() -> None:
    with pytest.raises(GnnplaceError, match="no case has 'nonsense' in its name"):
        bench_backend(BenchOptions(only=("nonsense",)))

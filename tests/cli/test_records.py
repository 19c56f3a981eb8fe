"""`record:NAME` on the command line, and the list of records."""

import json

import pytest

from gnnplace.cli.completion import models
from models_zoo.records.names import record_names
from tests.cli.calls import Cli

NAME = "layered_200-k40x4"


def test_records_are_listed(cli: Cli) -> None:
    code, out, _ = cli("records --json")
    listed = json.loads(out)
    assert code == 0
    assert set(listed) == set(record_names())
    assert listed[NAME]["makespan_s"] >= listed[NAME]["lower_bound_s"] > 0
    assert NAME in cli("records")[1]


def test_planners_are_compared_on_a_record(cli: Cli) -> None:
    code, out, _ = cli(f"compare record:{NAME} --planners single,heft --json")
    assert code == 0
    rows = json.loads(out)["rows"]
    least_s = json.loads(cli("records --json")[1])[NAME]["makespan_s"]
    assert all(row["makespan_s"] >= least_s * (1 - 1e-9) for row in rows)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"place record:{NAME} --devices k40x2", "leave out the devices (k40x2)"),
        ("place record:layered_20-k40x4", "did you mean 'layered_200-k40x4'"),
        ("place zoo:nmt_2", "the devices are missing; name them"),
        (f"place record:{NAME} --measure", "leave out measured runs"),
        (f"place record:{NAME} --dim batch=4", "leave out measured runs, inputs and sizes of dimensions"),
        (f"place record:{NAME} --input x.npz", "leave out measured runs, inputs and sizes of dimensions"),
        (f"bench records --only {NAME} --extend none.json", "none.json"),
    ],
)
def test_what_does_not_go_with_a_record_is_one_line(cli: Cli, line: str, message: str) -> None:
    code, out, errors = cli(line)
    assert (code, out) == (2, "")
    assert message in errors
    assert errors.count("\n") == 1


def test_the_tab_key_offers_records() -> None:
    assert f"record:{NAME}" in [name for name, _ in models("record:layered_200-")]

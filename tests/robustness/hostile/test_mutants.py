"""Damaged and harmful files of every kind are read or refused in one line, and no stray file is written."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.robustness.hostile.inputs import ACCEPTED, REFUSED, outcome_of
from tests.robustness.hostile.mutations import mutant
from tests.robustness.hostile.room import Room
from tests.robustness.hostile.targets import TARGETS

FINDINGS = Path(__file__).with_name("findings")
EXAMPLES = {
    "model": 150, "graph": 150, "topology": 150, "placement": 150, "costs": 150, "placed": 40, "annotated": 40, "policy": 100, "state": 40,
    "inputs": 150, "run": 20, "bench": 30, "devices": 200, "place": 10,
}  # fmt: skip


@pytest.mark.parametrize("name", TARGETS)
def test_valid_files_are_accepted(name: str, room: Room) -> None:
    target = TARGETS[name]
    verdicts = [outcome_of(target.read, files, room) for files in target.seeds()]
    if name == "devices":  # some are not on this machine
        assert set(verdicts) <= {ACCEPTED, REFUSED}
    else:
        assert set(verdicts) == {ACCEPTED}


@pytest.mark.parametrize("name", TARGETS)
def test_mutants_are_accepted_or_refused(name: str, room: Room) -> None:
    target = TARGETS[name]
    seeds = target.seeds()

    @settings(
        max_examples=EXAMPLES[name], deadline=None, derandomize=True, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.integers(0, 2**40))
    def outcome_is_known(number: int) -> None:
        assert outcome_of(target.read, mutant(seeds, Random(number)), room) in {ACCEPTED, REFUSED}

    outcome_is_known()


@pytest.mark.parametrize("folder", sorted(FINDINGS.iterdir()), ids=lambda folder: folder.name)
def test_findings_of_the_suite_are_accepted_or_refused(folder: Path, room: Room) -> None:
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert outcome_of(TARGETS[folder.name.partition("-")[0]].read, files, room) in {ACCEPTED, REFUSED}

"""Fixtures of all tests of commands."""

import pytest

from gnnplace.measuring import busy
from tests.cli.calls import Cli


@pytest.fixture(autouse=True)
def free_machine(own_cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is measured yet, and devices are measured although other tests run beside this one."""
    monkeypatch.setattr(busy, "busy_shares", lambda devices: dict.fromkeys(devices, 0.0))


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)

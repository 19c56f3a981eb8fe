"""Fixtures of all tests of commands."""

from pathlib import Path

import pytest

from gnnplace.measuring import busy
from tests.cli.calls import Cli


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNPLACE_CACHE", str(tmp_path / "cache"))


@pytest.fixture(autouse=True)
def free_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices are measured although other tests run beside this one."""
    monkeypatch.setattr(busy, "busy_shares", lambda devices: dict.fromkeys(devices, 0.0))


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)

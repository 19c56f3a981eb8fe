"""A room in which a test reads inputs."""

import os
from pathlib import Path

import pytest

from tests.robustness.hostile.room import Room


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    """A new room; the process has its old environment and working directory after the test."""
    for name in ("GNNPLACE_CACHE", "TMPDIR", "HOME"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.chdir(tmp_path)
    room = Room(tmp_path / "scratch" / "room")
    room.enter()
    return room

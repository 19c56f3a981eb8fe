"""Commands as a test calls them."""

import json
from typing import Any

import pytest

from gnnplace.cli.main import _run as run_command


def called(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    code = run_command(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """The one object on stdout of a command that works."""
    code, out, errors = called(capsys, *arguments, "--json")
    assert code == 0, errors
    assert out.count("\n") == 1
    return json.loads(out)

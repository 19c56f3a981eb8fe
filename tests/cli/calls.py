"""Commands as a test calls them."""

import json
import shlex
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from gnnplace.cli.main import _run as run_command

PROGRAM = (sys.executable, "-c", "from gnnplace.cli.main import main; main()")
"""The console script in a process of its own."""


class Cli:
    """Runs commands in this process; a fixture of the same name gives one."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        """Exit code, stdout and stderr; a single argument is a whole line."""
        code = run_command(_words(arguments))
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err

    def json(self, *arguments: object) -> Any:
        """The one object on stdout of a command that works."""
        code, out, errors = self(*_words(arguments), "--json")
        assert code == 0, errors
        assert out.count("\n") == 1
        return json.loads(out)


def _words(arguments: Sequence[object]) -> list[str]:
    return shlex.split(str(arguments[0])) if len(arguments) == 1 else list(map(str, arguments))

"""Terminals get colours and progress bars; pipes, and commands with --quiet, get neither."""

import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from gnnplace.cli import run_placed
from tests.cli.calls import PROGRAM

PLACE = "place zoo:layered_200 --devices k40x2 --planner annealing --evaluations 3000"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
MOVES = re.compile(r"\x1b\[\d*[A-HJK]")


def on_a_terminal(line: str, **environment: str) -> str:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, *line.split()],
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", **environment},
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
    os.close(ours)
    assert process.wait() == 0, shown
    return shown.decode()


def into_pipes(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *line.split()], capture_output=True, text=True, check=True)


def test_a_terminal_shows_the_best_so_far_and_the_time_left_then_a_coloured_answer() -> None:
    shown = on_a_terminal(PLACE)
    assert MOVES.search(shown)
    plain = COLOUR.sub("", shown)
    assert re.search(r"annealing: [\d,]+ of 3,000 evaluations|annealing: comparing", plain)
    assert re.search(r"best [\d.]+ m?s", plain)
    assert re.search(r"\d:\d\d:\d\d", plain)
    answer = plain.split("layered_200: ")[1]
    assert "per step (simulated)" in answer
    assert answer.rstrip().endswith("next: the same with --out DIR keeps it")
    assert COLOUR.search(shown.split("layered_200: ")[-1])


def test_no_color_turns_colours_off_on_a_terminal() -> None:
    colours = set(COLOUR.findall(on_a_terminal(PLACE, NO_COLOR="1")))
    assert not {code for code in colours if re.search(r"[39][0-7]", code)}


def test_pipes_get_neither_bar_nor_colour_and_the_hint_on_stderr() -> None:
    done = into_pipes(PLACE)
    assert "\x1b" not in done.stdout + done.stderr
    assert "per step (simulated)" in done.stdout
    assert done.stderr == "next: the same with --out DIR keeps it\n"


def test_quiet_prints_the_answer_only() -> None:
    done = into_pipes(f"{PLACE} -q")
    assert "per step (simulated)" in done.stdout
    assert done.stderr == ""
    shown = on_a_terminal(f"{PLACE} --quiet")
    assert not MOVES.search(shown)
    assert "next:" not in shown


def test_a_wide_table_is_not_folded_in_a_pipe() -> None:
    lines = into_pipes("zoo").stdout.splitlines()
    assert max(map(len, lines[:-1])) > 80
    assert sum(line.startswith("nmt_2:training ") for line in lines) == 1


def test_a_closed_standard_output_is_no_error() -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *PROGRAM, "planners", "--quiet"], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_names_that_the_encoding_lacks_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "set.json").write_text(
        '{"format": "gnnplace.topology/1", "devices": [{"name": "\u6838"}], "links": []}'
    )
    command = [*PROGRAM, "devices", str(tmp_path / "set.json")]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, env=environment, check=True)
    assert b"\\u6838" in done.stdout


def test_an_interrupt_during_the_imports_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run_placed.importlib.util, "find_spec", interrupted)
    with pytest.raises(SystemExit) as ended:
        run_placed.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "gnnplace: interrupted before there was an answer\n"

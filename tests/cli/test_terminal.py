"""Terminals get colours and progress bars; pipes, and commands with --quiet, get neither."""

import os
import pty
import re
import subprocess

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

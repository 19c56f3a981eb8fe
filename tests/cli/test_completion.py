"""Completions of the Tab key, requested as shells request them."""

import os
import subprocess

import pytest

from tests.cli.calls import PROGRAM


def completions(shell: str, **environment: str) -> list[str]:
    done = subprocess.run(
        PROGRAM, capture_output=True, text=True, check=False,
        env={**os.environ, "_GNNPLACE_COMPLETE": f"complete_{shell}", **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def bash(*words: str) -> list[str]:
    """The words as bash has split them; the last one is incomplete."""
    return completions("bash", COMP_WORDS="\n".join(("gnnplace", *words)), COMP_CWORD=str(len(words)))


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("plan",), ["planners"]),
        (("place", "model.onnx", "--planner", "spot"), ["spotlight"]),
        (("compare", "model.onnx", "--planners", "heft,gre"), ["heft,greedy"]),
        (("place", "model.onnx", "--devices", "k40x2+p1"), ["k40x2+p100"]),
        (("place", "model.onnx", "--devices", "aut"), ["auto"]),
        (("zoo", "mamba"), ["mamba_130m"]),
        (("place", "model.onnx", "--policy", "p"), ["prior"]),
        (("bench", "fid"), ["fidelity"]),
        (("place", "zoo", ":", "light_squ"), ["light_squeezenet"]),
        (("place", "zoo", ":", "light_squ", "--devices", "cpu", ":"), [str(c) for c in sorted(os.sched_getaffinity(0))]),
        (("place", "model"), []),
    ],
)  # fmt: skip
def test_bash_completes_names(words: tuple[str, ...], offered: list[str]) -> None:
    assert bash(*words) == offered


def test_zsh_and_fish_show_names_with_descriptions() -> None:
    (zsh,) = completions("zsh", _TYPER_COMPLETE_ARGS="gnnplace place zoo:nmt_2 --devices k40")
    assert '"k40":"NVIDIA Tesla K40 data sheet' in zsh
    line = "gnnplace place zoo:nmt_"
    fish = completions("fish", _TYPER_COMPLETE_FISH_ACTION="get-args", _TYPER_COMPLETE_ARGS=line)
    assert [item.split("\t")[0] for item in fish] == ["zoo:nmt_2", "zoo:nmt_4", "zoo:nmt_8"]

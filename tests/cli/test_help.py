"""Help: examples that run, suggestions for mistyped names, and quick imports."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from gnnplace.bench.suites import SUITES, takers
from gnnplace.cli.examples import EXAMPLES
from gnnplace.cli.main import app
from tests.cli.calls import Cli

COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
README = Path(__file__).parents[2] / "README.md"
TYPED = re.findall(
    r"^\$ (gnnplace .*?)(?:  +#.*)?$", README.read_text(encoding="utf-8") if README.exists() else "", re.M
)
LINES = [
    *(line for examples in EXAMPLES.values() for line, _ in examples),
    *(part.strip() for line in TYPED for part in line.split(";")),
]


@pytest.mark.parametrize("line", LINES)
def test_every_example_of_the_help_and_the_readme_parses(line: str) -> None:
    program, name, *arguments = shlex.split(line.partition(" > ")[0])
    assert program == "gnnplace"
    context = COMMANDS[name].make_context(name, arguments)
    assert context.args == []


def test_python_runs_the_package_as_the_command() -> None:
    lines = [sys.executable, "-m", "gnnplace", "planners", "--json"]
    ended = subprocess.run(lines, capture_output=True, text=True, check=True)
    assert "heft" in ended.stdout


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_shows_the_examples_and_every_command_has_quiet_and_json(cli: Cli, name: str) -> None:
    code, out, _ = cli(f"{name} -h")
    assert code == 0
    assert EXAMPLES[name][0][0].split()[:2] == ["gnnplace", name]
    words = re.sub(r"[\s│]+", " ", out)
    assert all(line in words for line, _ in EXAMPLES[name])
    assert "--quiet" in words
    assert "--json" in words


def test_the_help_of_bench_names_every_suite_and_the_suites_that_take_an_option(cli: Cli) -> None:
    words = re.sub(r"[\s│]+", " ", cli("bench -h")[1])
    assert ", ".join(SUITES) in words
    assert all(f"for {takers(option)}" in words for option in ("--seeds", "--only", "--rows", "--jobs"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("plac", "Did you mean 'place'"),
        ("place x.onnx --devices k40x2 --planer heft", "did you mean --planner?"),
        ("place --devices k40x2", "(see gnnplace place --help)"),
        ("place x.onnx", "the devices are missing"),
        ("place zoo:nmt_2 --devices k40x2 --planner HEFTY", "did you mean 'heft'"),
        ("compare zoo:nmt_2 --devices k40x2 --planners heft,anealing", "did you mean 'annealing'"),
        ("place zoo:nmt2 --devices k40x2", "did you mean 'nmt_2'"),
        ("place zoo:light_inceptionv2 --devices k40x2", "did you mean 'light_inception_v2'"),
        ("zoo rnnlm_2 --set layer=4 --out x.onnx", "did you mean 'layers'"),
        ("place zoo:nmt_2 --devices k41x2", "did you mean 'k40'"),
        ("place zoo:nmt_2 --devices gpu:0", "did you mean 'cpu:0'"),
        ("place zoo:nmt_2 --devices cdua:0", "did you mean 'cuda:0'"),
        ("bench fidelty", "did you mean 'fidelity'"),
    ],
)
def test_a_mistyped_name_gets_a_suggestion(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, errors = cli(*line.split())
    assert (code, out) == (2, "")
    assert message in errors
    assert errors.count("\n") == 1


def test_help_loads_none_of_the_heavy_libraries() -> None:
    script = "import sys, gnnplace.cli.main; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert {"numpy", "numba", "onnx", "onnxruntime", "torch", "dgl", "plotly", "gnnplace.graph"} & set(loaded) == set()

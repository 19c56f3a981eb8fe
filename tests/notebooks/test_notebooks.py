"""Every notebook runs as it is published, and what it says is what it computes."""

from __future__ import annotations

import ast
import base64
import hashlib
import importlib.util
import json
import re
import runpy
import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.notebooks.claims import CLAIMS, EXPECTED

ROOT = Path(__file__).parents[2]
TOOL = runpy.run_path(str(ROOT / "notebooks" / "execute.py"))
NOTEBOOKS = TOOL["notebooks"]()
RESULTS = ROOT / "notebooks" / "results"
MOST_BYTES = 2_000_000
PATHS = re.compile(r"(?<![\w.:/])/(?:root|home|work|tmp|Users|usr|opt|var|private)\b")

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def prose(notebook: Any) -> str:
    """All text, whatever the breaks of its lines."""
    return " ".join(" ".join(cell.source.split()) for cell in notebook.cells if cell.cell_type == "markdown")


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def results(notebook: Any) -> dict[str, Any]:
    """The dictionary that the last cell shows."""
    return ast.literal_eval(notebook.cells[-1].outputs[-1].data["text/plain"])


def complaints(notebook: Any) -> list[str]:
    """What was written to the error stream, warnings among it."""
    return [output.text for output in outputs(notebook) if output.get("name") == "stderr"]


def check_results(name: str, found: dict[str, Any]) -> None:
    expected = {claim.key: claim.value for claim in CLAIMS[name]} | EXPECTED[name]
    assert {key: found[key] for key in expected} == expected


def test_there_are_seven_notebooks_and_something_is_claimed_of_each() -> None:
    assert [path.stem[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04", "05", "06", "07"]
    assert set(CLAIMS) == set(EXPECTED) == {path.stem for path in NOTEBOOKS}


@each_notebook
def test_a_notebook_runs_as_published_without_a_warning_and_gives_what_its_text_says(
    path: Path, tmp_path: Path
) -> None:
    if "dgl" in path.stem and importlib.util.find_spec("dgl") is None:
        pytest.skip("dgl has no wheel for this Python")
    home, scratch = tmp_path / "notebooks", tmp_path / "scratch"
    home.mkdir()
    scratch.mkdir()
    shutil.copy(path, home)
    shutil.copytree(RESULTS, home / "results")
    notebook, seconds = TOOL["execute"](home / path.name, home, scratch)
    assert complaints(notebook) == []
    check_results(path.stem, results(notebook))
    assert seconds < TOOL["LIMIT_S"]


@each_notebook
def test_the_numbers_in_the_text_are_those_of_the_saved_results(path: Path) -> None:
    notebook = read(path)
    said = prose(notebook)
    phrases = [claim.phrase.replace("{}", claim.number) for claim in CLAIMS[path.stem]]
    assert [phrase for phrase in phrases if phrase not in said] == []
    check_results(path.stem, results(notebook))


@each_notebook
def test_every_figure_is_saved_with_an_image(path: Path) -> None:
    notebook = read(path)
    for cell in notebook.cells:
        bundles = [output.data for output in cell.get("outputs", []) if TOOL["FIGURE"] in output.get("data", {})]
        assert len(bundles) == cell.source.count(".show()"), cell.id
        for bundle in bundles:
            image = base64.b64decode(bundle[TOOL["IMAGE"]])
            assert image[:8] == b"\x89PNG\r\n\x1a\n"
            assert int.from_bytes(image[16:20], "big") >= 1000  # pixels of width
            assert (b"acTL" in image) == bool(bundle[TOOL["FIGURE"]].get("frames"))  # it moves


def test_the_policy_is_shown_at_work_in_an_animation() -> None:
    figures = [
        output.data[TOOL["FIGURE"]]
        for output in outputs(read(NOTEBOOKS[2]))
        if "data" in output and TOOL["FIGURE"] in output.data
    ]
    assert [len(figure.get("frames", [])) > 10 for figure in figures] == [True, False, False, False]


@each_notebook
def test_a_saved_notebook_is_whole_and_small_and_tells_nothing_of_the_machine(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert complaints(notebook) == []
    assert PATHS.findall(path.read_text(encoding="utf-8")) == []
    assert path.stat().st_size < MOST_BYTES
    assert [cell.metadata for cell in notebook.cells] == [{}] * len(notebook.cells)


@each_notebook
def test_every_stored_result_that_a_notebook_uses_is_there_with_the_command_that_made_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for name in sorted(set(re.findall(r"results/([\w.-]+\.json)", text))):
        command = json.loads((RESULTS / name).read_text(encoding="utf-8"))["command"]
        assert command.startswith("gnnplace ")
        assert " ".join(command.split()[:3]) in text, name


def test_the_stored_training_curves_are_those_of_the_policies_that_ship() -> None:
    runs = json.loads((RESULTS / "training.json").read_text(encoding="utf-8"))["runs"]
    for name, run in runs.items():
        policy = ROOT / "models_zoo" / "policies" / f"{name}.safetensors"
        card = json.loads(policy.with_suffix(".json").read_text(encoding="utf-8"))
        assert run["policy_sha256"] == hashlib.sha256(policy.read_bytes()).hexdigest()
        assert (run["command"], run["seed"], len(run["gain"])) == (card["command"], card["seed"], card["updates"])

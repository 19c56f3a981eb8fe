"""Packages have the public names that they list, names without an underscore have docstrings, and importing stays light."""

import ast
import importlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(importlib.util.find_spec("gnnplace").origin).parent
FILES = sorted(path for path in ROOT.rglob("*.py") if path.name != "__main__.py")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def offered(tree: ast.Module) -> list[str]:
    """The names in `__all__`."""
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id == "__all__":
            return list(ast.literal_eval(node.value))
    return []


@pytest.mark.parametrize("path", [path for path in FILES if path.name == "__init__.py"], ids=name_of)
def test_a_package_has_the_public_names_that_it_lists_each_once(path: Path) -> None:
    names = offered(ast.parse(path.read_text(encoding="utf-8")))
    package = importlib.import_module(".".join(("gnnplace", *path.parent.relative_to(ROOT).parts)))
    assert len(set(names)) == len(names), "lists a name twice"
    assert [name for name in names if not hasattr(package, name)] == []


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_module_and_public_name_has_a_docstring(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    defined = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name[0] != "_"]
    assert ast.get_docstring(tree)
    assert [node.name for node in defined if not ast.get_docstring(node)] == []


@pytest.mark.parametrize("path", [path for path in FILES if path.name == "__init__.py"], ids=name_of)
def test_a_folder_lists_all_its_modules_in_its_docstring(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    if path.parent == ROOT:  # the layout in CONTRIBUTING.md takes its place
        guide = Path(__file__).parents[2] / "CONTRIBUTING.md"
        if not guide.exists():
            pytest.skip("the guide stays in the repository")
        text = guide.read_text(encoding="utf-8")
    modules = [file for file in path.parent.iterdir() if file.suffix == ".py" or (file / "__init__.py").exists()]
    assert [file.stem for file in modules if file.stem[0] != "_" and not re.search(rf"\b{file.stem}\b", text)] == []


def test_every_folder_with_modules_is_a_package() -> None:
    assert {path.parent for path in FILES if not (path.parent / "__init__.py").is_file()} == set()


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("gnnplace", {"torch", "dgl", "ray", "plotly", "onnx", "onnxruntime", "numba"}),
        ("gnnplace.measuring.measured_evaluator, gnnplace.measuring.worker_process", {"torch", "dgl"}),
        ("gnnplace; gnnplace.Session, gnnplace.problem", {"torch", "dgl", "ray", "plotly"}),
        ("gnnplace; gnnplace.read_onnx", {"torch", "dgl", "onnxruntime", "networkx", "psutil"}),
        ("gnnplace.running", {"torch", "dgl", "ray", "plotly"}),
        ("gnnplace.report.page", {"torch", "dgl", "ray", "onnxruntime"}),
        ("gnnplace.run_record", {"plotly", "pydantic"}),
    ],
)
def test_importing_a_package_does_not_load_what_it_can_do_without(module: str, unwanted: set[str]) -> None:
    script = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert unwanted & set(loaded) == set()

"""Every module lists its public names with docstrings, and importing stays light."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(importlib.util.find_spec("gnnplace").origin).parent
FILES = sorted(path for path in ROOT.rglob("*.py") if path.name != "__main__.py")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def offered(tree: ast.Module) -> list[str] | None:
    """The names in `__all__`; None without one."""
    for node in tree.body:
        target = (
            node.targets[0]
            if isinstance(node, ast.Assign)
            else node.target
            if isinstance(node, ast.AnnAssign)
            else None
        )
        if isinstance(target, ast.Name) and target.id == "__all__":
            return list(ast.literal_eval(node.value))
    return None


def top_level_names(tree: ast.Module) -> set[str]:
    """Every name that the module binds at its top level, imports included."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    return names


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_module_lists_its_public_names_and_has_them(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = offered(tree)
    assert names is not None, "has no __all__"
    assert len(set(names)) == len(names), "lists a name twice"
    has_lazy_names = "__getattr__" in top_level_names(tree)
    assert has_lazy_names or set(names) <= top_level_names(tree), set(names) - top_level_names(tree)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_module_and_public_name_has_a_docstring(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    public = set(offered(tree) or ())
    defined = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in public]
    assert ast.get_docstring(tree)
    assert [node.name for node in defined if not ast.get_docstring(node)] == []


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

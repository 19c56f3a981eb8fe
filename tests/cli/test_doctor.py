"""`gnnplace doctor`: installed and missing packages, and how to install them."""

import json
from importlib import metadata

import pytest

from gnnplace import installation
from tests.cli.calls import Cli
from tests.cli.test_missing_packages import folder
from tests.cli.without_packages import without

__all__ = ["folder"]


def test_a_complete_installation_is_ok(cli: Cli) -> None:
    answer = cli.json("doctor")
    assert answer["ok"] is True
    checks = {check["name"]: check for check in answer["checks"]}
    assert {"Python", "gnnplace", "ONNX Runtime", "devices", "links", "cache folder", "scotch", "browser"} < set(checks)
    assert checks["execution"]["state"] == checks["search"]["state"] == "ok"
    assert f"onnxruntime {metadata.version('onnxruntime')}" in checks["ONNX Runtime"]["found"]
    assert all(bool(check["mend"]) == (check["state"] != "ok") for check in answer["checks"])


def test_the_table_lists_missing_packages_and_how_to_install_them(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    code, out, errors = cli("doctor --quiet")
    assert code == 0
    assert "-> apt install scotch" in out
    assert "all that placing needs is there" in out
    assert errors == ""


@pytest.mark.parametrize(
    ("package", "check"), [("torch", "search"), ("onnxruntime", "ONNX Runtime"), ("numba", "search")]
)
def test_a_broken_package_is_an_answer_and_exit_code_1(folder, package: str, check: str) -> None:
    done = without(package, "doctor", "--json", folder=folder)
    assert done.returncode == 1, done.stderr
    answer = json.loads(done.stdout)
    assert answer["ok"] is False
    found = {row["name"]: row for row in answer["checks"]}[check]
    assert found["state"] == "broken"
    assert f"No module named {package!r}" in found["found"]
    assert found["mend"].startswith("pip install")


def test_an_unwritable_cache_folder_is_named_with_a_remedy(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNPLACE_CACHE", "/proc/gnnplace")
    code, out, _ = cli("doctor")
    assert code == 1
    assert "-> GNNPLACE_CACHE=FOLDER names another one" in out


def test_a_package_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "requires", lambda name: ["numpy>=99", "rich>=13"])
    found = next(check for check in installation._packages() if check.name == "gnnplace")
    assert found.state == "broken"
    assert f"numpy>=99 ({metadata.version('numpy')} is installed)" in found.found
    assert "rich" not in found.found

"""Memory limits of containers, from the files of control groups."""

from pathlib import Path

import pytest

from gnnplace import isolated_process
from gnnplace.host_memory import control_group_bytes, physical_memory_bytes, total_memory_bytes


def write(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n", encoding="ascii")


@pytest.mark.parametrize("version", [1, 2])
def test_every_group_around_the_process_counts_and_cached_files_do_not(version: int, tmp_path: Path) -> None:
    names = (
        ("memory__limit_in_bytes", "memory__usage_in_bytes", "total_")
        if version == 1
        else ("memory__max", "memory__current", "")
    )
    limit, used, prefix = names
    root = tmp_path / "memory" if version == 1 else tmp_path
    write(root / "outer", **{limit: 1000, used: 700, "memory__stat": f"anon 1\n{prefix}inactive_file 50"})
    write(root / "outer" / "inner", **{limit: 400, used: 100})
    own = tmp_path / "own"
    own.write_text("3:cpu:/x\n4:memory:/outer/inner\n" if version == 1 else "0::/outer/inner\n", encoding="ascii")
    assert list(control_group_bytes(tmp_path, own)) == [(400, 100), (1000, 650)]


def test_in_a_container_the_mount_is_the_group_itself(tmp_path: Path) -> None:
    write(tmp_path, memory__max=300, memory__current=200)
    own = tmp_path / "own"
    own.write_text("0::/not/visible/here\n", encoding="ascii")
    assert list(control_group_bytes(tmp_path, own)) == [(300, 200)]


def test_a_group_without_a_limit_and_a_system_without_groups_limit_nothing(tmp_path: Path) -> None:
    write(tmp_path, memory__max="max", memory__current=200)
    own = tmp_path / "own"
    own.write_text("0::/\n", encoding="ascii")
    assert list(control_group_bytes(tmp_path, own)) == []
    assert list(control_group_bytes(tmp_path, tmp_path / "absent")) == []


def test_the_memory_of_devices_and_of_processes_respects_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 2**20 < total_memory_bytes() <= physical_memory_bytes()
    monkeypatch.setattr(isolated_process, "control_group_bytes", lambda: [(2**20, 2**19), (2**30, 0)])
    assert isolated_process.available_memory_bytes() == 2**19

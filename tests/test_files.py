"""Files stay complete when a program is killed or another program writes beside it."""

import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread

import pytest

from gnnplace.errors import GnnplaceError
from gnnplace.files import (
    append_json_line,
    new_file,
    new_folder,
    read_json_lines,
    taking_turns,
    temporary_folder,
    write_json_lines,
    write_text,
)  # fmt: skip
from tests.patience import PATIENCE_S


def test_lines_come_back_in_order_and_a_cut_off_one_is_left_out_but_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "lines.jsonl"
    write_json_lines(path, ({"n": n, "name": "é"} for n in range(2)))
    with path.open("a", encoding="utf-8") as file:
        file.write('{"n": 2, "na')
    assert read_json_lines(path, GnnplaceError) == [{"n": 0, "name": "é"}, {"n": 1, "name": "é"}]
    assert path.read_text(encoding="utf-8").endswith('{"n": 2, "na')


def test_a_last_line_counts_as_soon_as_it_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text("12", encoding="utf-8")  # may be the beginning of 123
    assert read_json_lines(path, GnnplaceError) == []
    path.write_text("12\n", encoding="utf-8")
    assert read_json_lines(path, GnnplaceError) == [12]


def test_there_are_no_lines_in_an_empty_file_and_in_none(tmp_path: Path) -> None:
    assert read_json_lines(tmp_path / "absent", GnnplaceError) == []
    write_json_lines(tmp_path / "empty", [])
    assert read_json_lines(tmp_path / "empty", GnnplaceError) == []


@pytest.mark.parametrize("line", [b"{", b"", b"\xff"])
def test_a_line_in_the_middle_that_is_no_json_is_refused_by_its_number(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b"1\n" + line + b"\n3\n")
    with pytest.raises(GnnplaceError, match=r"lines\.jsonl: line 2 is no valid JSON"):
        read_json_lines(path, GnnplaceError)


def test_a_file_appears_whole_or_not_at_all_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.txt"
    write_text(path, "first")
    with pytest.raises(TypeError), new_file(path) as temporary:
        temporary.write_bytes(b"half" + None)
    assert path.read_text(encoding="utf-8") == "first"
    assert list(path.parent.iterdir()) == [path]


def test_the_next_write_removes_the_leftovers_of_a_killed_one(tmp_path: Path) -> None:
    (tmp_path / ".file.txt.tmp").write_text("a long half of something", encoding="utf-8")
    write_text(tmp_path / "file.txt", "new")
    assert (tmp_path / "file.txt").read_text(encoding="utf-8") == "new"
    (tmp_path / ".placed.tmp" / "old").mkdir(parents=True)
    with new_folder(tmp_path / "placed", last="run.json") as fresh:
        assert not list(fresh.iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file.txt", "placed"]


@pytest.mark.parametrize(
    ("removes", "others"),
    [
        (None, set()),
        (["parts/part-0001.onnx", "absent"], {"notes.txt", "data/mine.csv"}),
        ([], {"notes.txt", "data/mine.csv", "parts/part-0001.onnx"}),
    ],
)
def test_a_folder_gets_its_new_files_and_keeps_or_loses_others(
    tmp_path: Path, removes: list[str] | None, others: set[str]
) -> None:
    path, fresh_files = tmp_path / "placed", {"run.json", "parts/part-0000.onnx", "data/weights.bin"}
    write_files(path, ["run.json", "parts/part-0001.onnx", "data/mine.csv", "data/weights.bin", "notes.txt"], "old")
    with new_folder(path, "run.json", None if removes is None else [path / name for name in removes]) as fresh:
        write_files(fresh, fresh_files, "new")
    there = {str(file.relative_to(path)): file.read_text("utf-8") for file in path.rglob("*") if file.is_file()}
    assert there == dict.fromkeys(fresh_files, "new") | dict.fromkeys(others, "old")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("there", ["parts", "run.json/mine.txt", "parts/part-0000.onnx/mine.txt"])
def test_a_folder_where_a_file_belongs_stays_and_so_does_everything_else(tmp_path: Path, there: str) -> None:
    path = tmp_path / "placed"
    write_files(path, [there, "placement.json"], "old")
    with pytest.raises(FileExistsError) as raised, new_folder(path, "run.json", removes=[]) as fresh:
        write_files(fresh, ["run.json", "placement.json", "parts/part-0000.onnx"], "new")
    assert raised.value.filename == str(path / there.removesuffix("/mine.txt"))
    assert {file for file in path.rglob("*") if file.is_file()} == {path / there, path / "placement.json"}
    assert (path / "placement.json").read_text("utf-8") == "old"


def test_a_folder_does_not_replace_a_file(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_text("mine")
    with pytest.raises(FileExistsError, match="is a file"), new_folder(tmp_path / "model.onnx", "run.json"):
        raise AssertionError("nothing may be made for it")
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


def write_files(folder: Path, names: Iterable[str], text: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def test_a_second_writer_of_the_same_file_waits(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    second = Thread(target=write_text, args=(path, "second"))
    with new_file(path) as temporary:
        second.start()
        second.join(0.2)
        assert second.is_alive()
        temporary.write_text("first", encoding="utf-8")
    second.join(PATIENCE_S)
    assert path.read_text(encoding="utf-8") == "second"
    assert list(tmp_path.iterdir()) == [path]


def test_turns_are_taken_one_after_the_other(tmp_path: Path) -> None:
    path, inside = tmp_path / "cache" / "model.onnx", []

    def turn(number: int) -> None:
        for _ in range(50):
            with taking_turns(path):
                inside.append(number)
                assert inside == [number]
                inside.clear()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(turn, range(4)))
    assert not list(path.parent.iterdir())


def test_a_temporary_folder_is_removed_in_the_end_or_by_the_next_who_needs_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    abandoned, others = tmp_path / "gnnplace-abandoned.tmp", tmp_path / "gnnplace-notes"
    for folder in (abandoned, others):
        folder.mkdir()
        (folder / "file").touch()
    with temporary_folder() as first, temporary_folder() as second:
        assert first != second
        assert first.is_dir()
        assert not abandoned.exists()
    assert list(tmp_path.iterdir()) == [others]


def test_a_line_is_added_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    for number in range(3):
        append_json_line(path, {"é": number})
    assert read_json_lines(path, GnnplaceError) == [{"é": number} for number in range(3)]

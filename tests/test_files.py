"""Files of JSON lines, as a program that is killed leaves them."""

from pathlib import Path

import pytest

from gnnplace.errors import GnnplaceError
from gnnplace.files import read_json_lines, write_json_lines


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

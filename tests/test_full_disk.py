"""Writing to a full or read-only disk gives one clear error, and every file stays as it was."""

import errno
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import gnnplace
from gnnplace.bench.harness import BenchOptions, BenchResult, write_result
from gnnplace.cost.measured import CostStore, KindCosts, write_costs
from gnnplace.cost.measurement_store import MeasurementStore
from gnnplace.errors import GnnplaceError, MeasurementFailed
from gnnplace.files import append_json_line, read_json_lines, write_json_lines, write_text
from gnnplace.graph.json_format import write_graph
from gnnplace.graph.op_graph import Op, OpGraph
from gnnplace.measuring.stored_model import Kept, StoredModel
from gnnplace.policy.checkpoint import save_policy
from gnnplace.policy.network import build_policy
from gnnplace.training.run_state import fresh_state, write_state
from models_zoo.networks.light import write_light_model
from tests.cli.calls import Cli
from tests.disks import fill, make_read_only, small_disk

CHAIN = OpGraph.build("chain", [Op(f"op {n}", time_s={"k40": 1.0}) for n in range(300)], [])
LARGE = "0" * 2**20
WRITERS: dict[str, Callable[[Path], object]] = {
    "text": lambda path: write_text(path, LARGE),
    "json lines": lambda path: write_json_lines(path, [LARGE]),
    "graph.json": lambda path: write_graph(CHAIN, path),
    "graph.json.gz": lambda path: write_graph(CHAIN, path),
    "costs.json": lambda path: write_costs(CostStore({"k40": KindCosts({LARGE: 1.0})}, {}), path),
    "result.json": lambda path: write_result(BenchResult("engine", BenchOptions(), [{"row": LARGE}], {}), path),
    "policy.safetensors": lambda path: save_policy(path, build_policy(0), {}),
    "state.pt": lambda path: write_state(path, fresh_state(build_policy(0), "{}")),
    "model.onnx": lambda path: write_light_model("squeezenet", path),
}
HINDRANCES = {"full": (fill, errno.ENOSPC), "read-only": (make_read_only, errno.EROFS)}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", kib=16 * 1024) as folder:
        yield folder


@pytest.mark.parametrize("hindrance", HINDRANCES)
@pytest.mark.parametrize("name", WRITERS)
def test_a_file_that_cannot_be_written_is_named_and_stays_as_it_was(disk: Path, name: str, hindrance: str) -> None:
    path, (hinder, number) = disk / name, HINDRANCES[hindrance]
    beside = [path, path.with_suffix(".json")]
    for file in beside:
        file.write_text("from before", encoding="utf-8")
    before = sorted(disk.iterdir())
    hinder(disk)
    with pytest.raises(OSError, match=path.stem) as caught:
        WRITERS[name](path)
    assert caught.value.errno == number
    assert Path(caught.value.filename) in beside
    assert [file.read_text(encoding="utf-8") for file in beside] == ["from before"] * 2
    assert sorted(file for file in disk.iterdir() if file.name != "filler") == before


def test_a_line_that_does_not_fit_leaves_no_half_of_it(disk: Path) -> None:
    path = disk / "result.json.cases"
    append_json_line(path, {"case": 1})
    fill(disk)
    with pytest.raises(OSError, match=r"result\.json\.cases"):
        append_json_line(path, {"case": "2" * 8192})
    (disk / "filler").unlink()
    append_json_line(path, {"case": 3})
    assert read_json_lines(path, GnnplaceError) == [{"case": 1}, {"case": 3}]


@pytest.mark.parametrize("hindrance", HINDRANCES)
def test_a_store_that_cannot_be_written_keeps_its_costs(disk: Path, hindrance: str) -> None:
    path = disk / "measurements.sqlite"
    store = MeasurementStore(path, {"cpu": "one"})
    store.add_dispatch("cpu", 1e-5)
    HINDRANCES[hindrance][0](disk)
    with pytest.raises(
        MeasurementFailed, match=r"measurements\.sqlite: .*make room or let it be written, or set GNNPLACE"
    ):
        store.add_dispatch("cpu", 1.0)
    assert store.costs().kinds["cpu"].dispatch_overhead_s == 1e-5
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("hindrance", HINDRANCES)
def test_a_placed_folder_that_cannot_be_replaced_stays_whole(
    capsys: pytest.CaptureFixture[str], disk: Path, tmp_path: Path, hindrance: str
) -> None:
    model, out = tmp_path / "graph.json", disk / "placed"
    write_graph(CHAIN, model)
    gnnplace.place(model, "k40x2", gnnplace.PlaceOptions(planner="heft")).save(out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    HINDRANCES[hindrance][0](disk)
    code, printed, errors = Cli(capsys)(
        "place", str(model), "--devices", "k40x2", "--planner", "single", "--out", str(out)
    )
    assert code == 2
    assert not printed
    assert len(errors.splitlines()) == 1, errors
    assert errors.startswith(f"gnnplace: {out}: ")
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize(
    "command",
    [
        "place none.onnx --out {}",
        "place none.onnx --out {}/new/placed",
        "place none.onnx --trace {}/trace.json",
        "run none --output {}/y.npz",
        "profile none.onnx --devices cpu:0 --out {}/costs.json",
        "bench none --out {}/result.json",
        "zoo nmt_2 --out {}/nmt.onnx",
        "report none --pictures {}/pictures",
    ],
)
def test_an_output_that_cannot_be_written_is_refused_before_any_work(
    capsys: pytest.CaptureFixture[str], disk: Path, command: str
) -> None:
    make_read_only(disk)
    words = command.format(disk).split()
    code, printed, errors = Cli(capsys)(*words)
    assert (code, printed) == (2, "")
    assert (
        errors
        == f"gnnplace: {words[-1]}: Read-only file system; choose a place that may be written to; nothing was changed\n"
    )


def test_a_search_continues_when_its_measurements_cannot_be_stored(disk: Path) -> None:
    store = MeasurementStore(disk / "measurements.sqlite", {"cpu": "one"})
    fill(disk)
    written: list[str] = []
    stored = object.__new__(StoredModel)
    stored.not_kept, stored._kept = "", Kept(store, np.zeros((1, 1)))
    for kind in ("cpu", "gpu"):
        stored.write(lambda store, kind=kind: (written.append(kind), store.add_dispatch(kind, 1.0)))
    assert "full" in stored.not_kept
    assert written == ["cpu"]

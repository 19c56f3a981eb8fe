"""Models too large for one file, or for a visit of every node per part."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from gnnplace.onnx_io.manifest import write_parts
from gnnplace.onnx_io.read import read_onnx
from gnnplace.onnx_io.segments import segments
from gnnplace.running.session import PARTS, Session

ROWS, COLUMNS, TABLES = 100_000, 1024, 6
TABLE_BYTES = 4 * ROWS * COLUMNS
MARKED_ROW = 77_777

PLACE_AND_SPLIT = """
import json, sys
from pathlib import Path
from gnnplace.devices.topology import Device, Topology
from gnnplace.onnx_io.annotate import write_placed
from gnnplace.onnx_io.manifest import write_parts
from gnnplace.onnx_io.read import read_onnx
from gnnplace.onnx_io.segments import segment_numbers, segments

def peak_bytes():
    # Not of getrusage, which counts what the program that started this one held.
    (line,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    return 1024 * int(line.split()[1])

before = peak_bytes()
model = read_onnx(sys.argv[1])
graph, devices = model.graph, ("cpu:0", "cpu:1")
assignment = [op % 2 for op in range(graph.num_ops)]
found = segments(graph, assignment, graph.topological_order, model.constant_ops)
out = Path(sys.argv[2])
topology = Topology("two", tuple(map(Device, devices)))
write_parts(model, found, devices, out / "parts")
write_placed(model, topology, assignment, segment_numbers(found, graph.num_ops), out / "placed.onnx", "parts")
print(json.dumps({"before": before, "peak": peak_bytes(), "parts": len(found), "weights": graph.total_weight_bytes}))
"""


def large_model(folder: Path) -> Path:
    """2.4 GB of tables in a file with holes; the model adds up one row of each."""
    folder.mkdir()
    with (folder / "tables.bin").open("wb") as file:
        file.truncate(TABLES * TABLE_BYTES)
        for table in range(TABLES):
            file.seek(table * TABLE_BYTES + 4 * COLUMNS * MARKED_ROW)
            file.write(np.full(COLUMNS, table + 1, np.float32).tobytes())
    nodes, tensors, total = [], [], "zero"
    for table in range(TABLES):
        tensor = TensorProto(name=f"table{table}", data_type=TensorProto.FLOAT, dims=[ROWS, COLUMNS])
        tensor.data_location = TensorProto.EXTERNAL
        place = {"location": "tables.bin", "offset": table * TABLE_BYTES, "length": TABLE_BYTES}
        for key, value in place.items():
            tensor.external_data.add(key=key, value=str(value))
        tensors.append(tensor)
        nodes += [
            helper.make_node("Gather", [f"table{table}", "row"], [f"found{table}"], f"look up {table}"),
            helper.make_node("Add", [total, f"found{table}"], [f"sum{table}"], f"add {table}"),
        ]
        total = f"sum{table}"
    row = helper.make_tensor_value_info("row", TensorProto.INT64, ["N"])
    zero = helper.make_tensor_value_info("zero", TensorProto.FLOAT, [COLUMNS])
    out = helper.make_tensor_value_info(total, TensorProto.FLOAT, ["N", COLUMNS])
    graph = helper.make_graph(nodes, "large", [row, zero], [out], tensors)
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    (folder / "large.onnx").write_bytes(model.SerializeToString())
    return folder / "large.onnx"


@pytest.mark.usefixtures("needs_two_cores")
def test_a_model_over_2_gb_is_placed_and_split_without_loading_its_weights_which_are_copied_once(
    tmp_path: Path,
) -> None:
    if shutil.disk_usage(tmp_path).free < 2 * TABLES * TABLE_BYTES:
        pytest.skip("the disk has no room for the model if its file cannot have holes")
    path, out = large_model(tmp_path / "model"), tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-c", PLACE_AND_SPLIT, str(path), str(out)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    weights_bytes = [
        TABLE_BYTES
        * sum("table" in tensor.name for tensor in onnx.load(part, load_external_data=False).graph.initializer)
        for part in (out / PARTS).glob("*.onnx")
    ]
    assert sum(weights_bytes) == facts["weights"] == TABLES * TABLE_BYTES > 2**31
    assert facts["parts"] >= 2
    # The promise is 1.3 times the largest part. What reading and splitting take is far below even one of its tables.
    assert facts["peak"] - facts["before"] < 0.3 * max(weights_bytes)
    assert facts["peak"] < 1.3 * max(weights_bytes)
    sizes = {file: file.stat().st_size for file in out.rglob("*") if file.is_file()}
    assert sizes.pop(out / PARTS / "data" / "tables.bin") == TABLES * TABLE_BYTES
    assert sum(sizes.values()) < 2**20
    assert (path.parent / "tables.bin").stat().st_nlink == 1
    feed = {"row": np.array([MARKED_ROW, 0]), "zero": np.zeros(COLUMNS, np.float32)}
    for placed in (out, out / "placed.onnx"):
        with Session(placed) as session:
            (found,) = session.run(None, feed)
        assert found[:, 0].tolist() == [sum(range(1, TABLES + 1)), 0.0]
        assert len(os.listdir(out)) == len({"placed.onnx", PARTS})


def long_model(length: int, path: Path) -> Path:
    """Ten chains of equal length that all read one weight, each with a branch now and then."""
    nodes, values = [], [f"x{chain}" for chain in range(10)]
    for step in range(length // 10):
        for chain, value in enumerate(values):
            name = f"{chain}.{step}"
            if step % 100 == 50:
                bodies = [
                    helper.make_graph(
                        [helper.make_node(op_type, [value, "w"], [f"in {name}"])], "body", [],
                        [helper.make_tensor_value_info(f"in {name}", TensorProto.FLOAT, [4])],
                    )
                    for op_type in ("Add", "Mul")
                ]  # fmt: skip
                nodes.append(helper.make_node("If", ["on"], [name], then_branch=bodies[0], else_branch=bodies[1]))
            else:
                nodes.append(helper.make_node("Add" if step % 2 else "Sub", [value, "w"], [name]))
            values[chain] = name
    vector = [helper.make_tensor_value_info(f"x{chain}", TensorProto.FLOAT, [4]) for chain in range(10)]
    outputs = [helper.make_tensor_value_info(value, TensorProto.FLOAT, [4]) for value in values]
    weight = onnx.numpy_helper.from_array(np.array([1, 2, 3, 4], np.float32), "w")
    on = helper.make_tensor_value_info("on", TensorProto.BOOL, [])
    graph = helper.make_graph(nodes, "long", [*vector, on], outputs, [weight])
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


@pytest.mark.usefixtures("needs_two_cores")
def test_20_000_nodes_are_read_and_split_without_recursion(tmp_path: Path) -> None:
    limit = sys.getrecursionlimit()
    path = long_model(20_000, tmp_path / "long.onnx")
    sys.setrecursionlimit(400)
    try:
        model = read_onnx(path)
        assert model.graph.num_ops == 20_000
        assignment = [op // 1000 % 2 for op in range(20_000)]
        found = segments(model.graph, assignment, model.graph.topological_order, model.constant_ops)
        write_parts(model, found, ("cpu:0", "cpu:1"), tmp_path / PARTS)
    finally:
        sys.setrecursionlimit(limit)
    feed = {f"x{chain}": np.full(4, chain, np.float32) for chain in range(10)} | {"on": np.array(True)}
    with Session(tmp_path) as session:
        outputs = session.run(None, feed)
    # 50 steps of Sub and 50 of Add in a hundred, but that one Sub is an If that adds.
    assert [output.tolist() for output in outputs] == [
        (np.full(4, chain) + 40 * np.array([1, 2, 3, 4])).tolist() for chain in range(10)
    ]

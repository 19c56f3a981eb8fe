"""Inputs that mutations once found: each is refused in one line, or works."""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest

from gnnplace.devices.spec import load_topology
from gnnplace.errors import GnnplaceError, InvalidGraph, InvalidInput, InvalidTopology, UnsupportedModel
from gnnplace.graph.json_format import read_graph
from gnnplace.onnx_io.read import read_onnx
from gnnplace.onnx_io.sample_inputs import model_from_text
from gnnplace.policy.checkpoint import checked_config, restored_network
from gnnplace.report.answer import speed
from gnnplace.report.bench_page import read_bench, write_bench_page
from gnnplace.running.feed import read_arrays

TEXT = '<ir_version: 8, opset_import: ["": 17]> g (float[{dim}] xyz) => (float[2] y) {{ y = Relu(xyz) }}'


@pytest.mark.parametrize("version", [2**40, -1])
def test_a_version_of_the_operator_set_that_does_not_exist(version: int, tmp_path: Path) -> None:
    model = onnx.load_from_string(model_from_text(TEXT.format(dim=2)))
    model.opset_import[0].version = version
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(UnsupportedModel, match=f"operator set '' has the version {version}"):
        read_onnx(tmp_path / "m.onnx")


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(model_from_text(TEXT.format(dim=2)).replace(b"xyz", b"x\xffz"))
    with pytest.raises(UnsupportedModel, match=r"is no text in UTF-8|is no ONNX model"):
        read_onnx(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    "dim", ["N", "N + 9**9**9**9", "(" * 150 + "N" + ")" * 150, "1/0", "N % 0", "n" * 5000, "9" * 5000]
)
def test_dimensions_that_would_take_for_ever_are_names(dim: str, tmp_path: Path) -> None:
    model = onnx.load_from_string(model_from_text(TEXT.format(dim="N")))
    model.graph.input[0].type.tensor_type.shape.dim.add().dim_param = dim
    onnx.save(model, tmp_path / "m.onnx")
    assert read_onnx(tmp_path / "m.onnx").graph.num_ops == 1


def test_an_op_graph_that_unpacks_to_a_great_deal(tmp_path: Path) -> None:
    path = tmp_path / "graph.json.gz"
    with gzip.open(path, "wb", 1) as file:
        for _ in range(257):
            file.write(b" " * 2**20)
    with pytest.raises(InvalidGraph, match="unpacks to more than 256 MiB"):
        read_graph(path)


def test_an_array_whose_header_is_no_header(tmp_path: Path) -> None:
    target = io.BytesIO()
    np.save(target, np.ones((2, 2), np.float32))
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", target.getvalue().replace(b"(2, 2)", b"((2, 2"))
    with pytest.raises(InvalidInput, match=r"is no \.npz file"):
        read_arrays(tmp_path / "x.npz")


@pytest.mark.parametrize("spec", ["cpu:0-99999999999", "cpu:" + "9" * 5000, "cuda:" + "9" * 5000, "x" * 5000, "a\0b", "cpu:0[memory=1.2.3GiB]"])  # fmt: skip
def test_device_sets(spec: str) -> None:
    with pytest.raises(InvalidTopology):
        load_topology(spec)


def test_a_policy_that_says_it_is_huge_takes_no_memory() -> None:
    config = checked_config(
        {"hidden": 4096, "rounds": 512, "type_width": 8, "message_passing": True, "device_features": True}, "card"
    )
    with pytest.raises(GnnplaceError, match="has the shape None"):
        restored_network(config, {}, "card")


def test_times_of_zero_are_compared() -> None:
    assert [speed(0.0, 1.0), speed(1.0, 0.0), speed(0.0, 0.0)] == ["faster than", "slower than", "as fast as"]


def test_a_result_without_what_its_page_shows(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text('{"format": "gnnplace.bench/1", "suite": "fidelity", "details": {}, "rows": [{}]}')
    with pytest.raises(GnnplaceError, match=r"lacks a value that its page shows \(KeyError"):
        write_bench_page(read_bench(tmp_path / "r.json"), tmp_path / "r.html")

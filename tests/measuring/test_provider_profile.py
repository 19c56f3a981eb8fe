"""Seconds of ops on a provider whose profile does not show them, against a stand-in for the measuring process."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from gnnplace.measuring.grouped_parts import PartMaker
from gnnplace.measuring.provider_profile import measured_shares
from gnnplace.measuring.worker_process import Answer, Job
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.read import read_onnx
from tests.measuring_processes import CORE, QUICK


@pytest.fixture
def model(tmp_path: Path) -> OnnxModel:
    """Four elementwise ops, each a kernel of its own."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[4096] x) => (float[4096] y)
        { a = Exp(x) b = Sin(a) c = Cos(b) y = Erf(c) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    return read_onnx(tmp_path / "m.onnx")


def shares(model: OnnxModel, folder: Path, part_s: tuple[np.ndarray, ...]) -> tuple[np.ndarray, list[Job]]:
    jobs = list[Job]()

    def run(job: Job) -> Answer:
        jobs.append(job)
        return Answer(None, part_s=part_s)

    worker: Any = SimpleNamespace(run=run)
    return measured_shares(model, CORE, PartMaker(model, folder), worker, QUICK), jobs


def test_ops_have_the_seconds_of_their_parts_without_those_of_a_call(model: OnnxModel, tmp_path: Path) -> None:
    found, (job,) = shares(model, tmp_path, (np.array([5e-5, 2e-5, 2.01e-5, 3e-5]),))
    assert [len(parts) for parts in job.candidates] == [4]
    # The fastest part takes a call; what is no longer than that keeps a fiftieth of its seconds.
    assert found == pytest.approx([3e-5, 0.04e-5, 0.0402e-5, 1e-5])


def test_without_seconds_of_all_parts_the_roofline_divides_the_model(model: OnnxModel, tmp_path: Path) -> None:
    for part_s in ((), (np.array([1.0, 2.0]),)):
        found, _ = shares(model, tmp_path, part_s)
        assert (found > 0).all()
        assert found.max() < 1e-3

"""Trials of paired measurements: known differences are planted and found, and counted."""

import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from gnnplace.api import set_up
from gnnplace.bench import pairs
from gnnplace.bench.harness import BenchOptions
from gnnplace.bench.measured import DEVICES
from gnnplace.bench.pairs import PairCase, bench_pairs, pairs_summary
from gnnplace.errors import GnnplaceError
from gnnplace.measuring.paired import PairRule
from gnnplace.onnx_io.busy_op import with_busy_op
from gnnplace.onnx_io.part import Part
from tests.quick_measuring import measure_quickly

MODEL = """<ir_version: 8, opset_import: ["": 17]> g (float[64, 64] x) => (float[64, 64] y)
    { a = MatMul(x, x)  b = Exp(x)  c = MatMul(a, b)  d = Relu(a)  e = MatMul(d, b)  y = Add(c, e) }"""


def test_a_busy_op_runs_beside_the_ops_of_a_part_and_changes_no_output() -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Neg(x) }'
    part = Part("p", "cpu:0", onnx.parser.parse_model(text).SerializeToString(), ("x",), ("y",), key="k")
    busy = with_busy_op(part, 7)
    session = ort.InferenceSession(busy.model, providers=["CPUExecutionProvider"])
    found, drawn = session.run(None, {"x": np.ones(2, np.float32)})
    assert found.tolist() == [-1.0, -1.0]
    assert drawn.shape == (7,)
    assert (busy.inputs, busy.outputs) == (part.inputs, part.outputs)
    assert busy.key != part.key


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_a_step_with_a_busy_op_of_three_times_its_length_takes_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure_quickly(pairs._RULE, monkeypatch.setattr)
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "model.onnx")
    setup = set_up(tmp_path / "model.onnx", DEVICES)
    monkeypatch.setattr(pairs, "real_setup", lambda model, devices: setup)
    monkeypatch.setattr(pairs, "RULES", {0.0: PairRule(max_blocks=10), 3.0: PairRule(max_blocks=30)})
    monkeypatch.setattr(pairs, "MODELS", {"model": "branches"})
    monkeypatch.setattr(
        pairs, "run_cases", lambda cases, run, _: {case: run(case) for case in cases}
    )  # in this process
    result = bench_pairs(BenchOptions(seeds=1))
    same, planted = result.rows
    assert same["mean_difference"] < planted["mean_difference"]
    assert 0.5 < planted["mean_difference"] < 20.0
    assert (planted["trials"], planted["wrong_sign"]) == (1, 0)
    assert result.summary["planted_3_right"] == f"{planted['right']} of 1"
    with pytest.raises(GnnplaceError, match=r"there is no planted difference '0\.5'; known are 0, 3"):
        bench_pairs(BenchOptions(rows=("0.5",)))


def test_a_trial_is_right_where_its_interval_has_the_planted_sign() -> None:
    trials = [[0.02, 0.01, 0.03, 20, 1.0], [0.01, -0.01, 0.03, 40, 3.0], [-0.02, -0.03, -0.01, 20, 2.0]]
    found = {PairCase("m", planted, 0, 3): {"step_s": 0.1, "trials": trials} for planted in (0.0, 0.02)}
    summary = pairs_summary(found)
    assert (summary["planted_0_right"], summary["planted_0.02_right"]) == ("1 of 3", "1 of 3")
    assert summary["planted_0_longest_s"] == 3.0
    assert summary["planted_0_mean_difference"] == pytest.approx(0.01 / 3)

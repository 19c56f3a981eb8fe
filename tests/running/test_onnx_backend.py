"""Models of ONNX's own test suite, cut and run on two devices, pass where one plain session passes."""

import unittest
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.backend.test.runner import Runner

from gnnplace.errors import InvalidInput
from gnnplace.running.onnx_backend import PlacedBackend, PlacedModel
from tests.robustness.backend.cases import BackendCase, backend_cases
from tests.robustness.backend.compare import compare, placed_outcome

pytestmark = pytest.mark.usefixtures("needs_two_cores")

SHARDS = 4
loaded = cache(backend_cases)


def sample_by_op() -> list[BackendCase]:
    """By name, the first case of a single op of each type, and each case of several ops with a new type."""
    seen: set[tuple[bool, str]] = set()
    found = []
    for case in loaded("node"):
        several = len(case.op_types) > 1
        new = {(several, op_type) for op_type in case.op_types} - seen
        if new:
            found.append(case)
            seen |= new
    return found


def not_as_plain(cases: Iterable[BackendCase]) -> dict[str, Any]:
    """The outcomes of cases that a plain session passes and a placed model does not."""
    found = {}
    for case in cases:
        outcomes = compare(case, seed=0)
        if outcomes["plain"]["verdict"] == "passes" and outcomes["placed"]["verdict"] not in ("passes", "agrees"):
            found[case.name] = outcomes["placed"]
        if outcomes["placed"]["verdict"] == "breaks":
            found[case.name] = outcomes["placed"]
    return found


@pytest.mark.parametrize("travels", [False, True])
@pytest.mark.parametrize("family", ["simple", "pytorch-converted", "pytorch-operator"])
def test_the_parts_pass_each_case_of_a_family_that_a_plain_session_passes(family: str, travels: bool) -> None:
    cases = loaded(family)
    assert len(cases) >= 23
    assert not_as_plain(case.travelling() if travels else case for case in cases) == {}


@pytest.mark.parametrize("travels", [False, True])
@pytest.mark.parametrize("shard", range(SHARDS))
def test_the_parts_pass_each_sampled_case_that_a_plain_session_passes(shard: int, travels: bool) -> None:
    cases = sample_by_op()
    assert len({case.op_types for case in cases if len(case.op_types) == 1}) > 180
    assert not_as_plain(case.travelling() if travels else case for case in cases[shard::SHARDS]) == {}


def test_models_of_several_ops_are_cut() -> None:
    segments = {case.name: placed_outcome(case, 0).segments for case in loaded("simple")}
    assert segments["test_single_relu_model"] == 1
    assert segments["test_sequence_model8"] > 1
    relu = next(case for case in loaded("simple") if case.name == "test_single_relu_model")
    assert placed_outcome(relu.travelling(), 0).segments == 3


def small_case(text: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> BackendCase:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {text}')
    return BackendCase("small", "simple", model.SerializeToString(), (([*inputs], [*outputs]),), 1e-3, 1e-7)


ADD = "(float[2] x) => (float[2] y) { a = Add(x, x)  y = Add(a, x) }"
X = np.array([1, 2], np.float32)


def test_wrong_results_and_unexpected_errors_of_the_parts_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    case = small_case(ADD, [X], [3 * X])
    assert compare(case, 0)["placed"] == {"verdict": "passes", "reason": "", "segments": 2}
    right = PlacedModel.run
    monkeypatch.setattr(PlacedModel, "run", lambda *inputs: [1.002 * array for array in right(*inputs)])
    assert compare(case, 0)["plain"]["verdict"] == "passes"
    assert compare(case, 0)["placed"]["verdict"] == "differs"
    assert "Mismatched elements" in compare(case, 0)["placed"]["reason"]
    assert not_as_plain([case]).keys() == {"small"}
    monkeypatch.setattr(PlacedModel, "run", lambda *inputs: {}["lost"])
    assert compare(case, 0)["placed"]["verdict"] == "breaks"
    assert not_as_plain([case]).keys() == {"small"}


def test_unexpected_outputs_agree_with_those_of_a_plain_session() -> None:
    found = compare(small_case(ADD, [X], [4 * X]), 0)
    assert (found["plain"]["verdict"], found["placed"]["verdict"]) == ("differs", "agrees")
    found = compare(small_case(ADD, [np.ones(3, np.float32)], [X]), 0)
    assert (found["plain"]["verdict"], found["placed"]["verdict"]) == ("fails", "fails")
    found = compare(small_case(ADD.replace("Add(a", "Odd(a"), [X], [X]), 0)
    assert (found["plain"]["verdict"], found["placed"]["verdict"]) == ("refuses", "refuses")


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        (X, X[:1]), (X, X.astype(np.float64)), (X, np.array([1, np.nan], np.float32)), ([X, X], [X]),
        ([X], [X.astype(np.int64)]), (X, [X]), (None, X), (X, None),
        (np.array(["a"], object), np.array(["b"], object)),
    ],
)  # fmt: skip
def test_the_comparison_detects_every_kind_of_difference(expected: Any, found: Any) -> None:
    case = small_case(ADD, [X], [X])
    case.check([expected], [expected])
    for pair in (([expected], [found]), ([expected, X], [expected])):
        with pytest.raises((AssertionError, ValueError)):
            case.check(*pair)


class Passed(unittest.TestResult):
    passed = 0

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802  # unittest's name
        self.passed += 1


def test_the_test_runner_of_onnx_accepts_the_backend() -> None:
    loaded("node")  # now, because computing the expected outputs warns
    suite = Runner(PlacedBackend, __name__).include("^test_(clip|sequence_model4|Sigmoid)_cpu$").test_suite
    result = Passed()
    suite.run(result)
    assert (result.passed, result.failures, result.errors) == (3, [], [])


def test_the_backend_supports_only_the_cpu() -> None:
    assert PlacedBackend.supports_device("CPU")
    assert not PlacedBackend.supports_device("CUDA")


def test_a_model_runs_on_the_stated_devices() -> None:
    model = small_case(ADD, [X], [X]).proto
    assert PlacedBackend.prepare(model).num_segments == 2
    prepared = PlacedBackend.prepare(model, devices=["cpu:1"])
    assert prepared.num_segments == 1
    assert prepared.run(X)[0].tolist() == [3, 6]
    with pytest.raises(InvalidInput, match="2 inputs are given; the model has x"):
        prepared.run([X, X])
    prepared.close()
    with pytest.raises(InvalidInput, match="closed"):
        prepared.run(X)
    assert PlacedBackend.run_model(model, [X], seed=3)[0].tolist() == [3, 6]


def test_a_node_runs_alone() -> None:
    clip = onnx.helper.make_node("Clip", ["x", "", "most"], ["y"])
    assert PlacedBackend.run_node(clip, [X, np.float32(1.5)])[0].tolist() == [1, 1.5]
    old = onnx.helper.make_node("Squeeze", ["x"], ["y"], axes=[0])
    assert PlacedBackend.run_node(old, X[None], opset_version=11)[0].tolist() == [1, 2]
    other = onnx.helper.make_node("Binarizer", ["x"], ["y"], domain="ai.onnx.ml", threshold=1.0)
    assert PlacedBackend.run_node(other, X)[0].tolist() == [0, 1]
    with pytest.raises(InvalidInput, match="1 inputs are given; the node names x, most"):
        PlacedBackend.run_node(clip, X)


def test_a_travelling_case_keeps_its_meaning() -> None:
    case = small_case("(float[2] x) => (float[2] y, float[2] x) { y = Neg(x) }", [X], [-X, X]).travelling()
    assert case.op_types == ("Identity", "Neg", "Identity", "Identity")
    assert compare(case, 0)["placed"]["verdict"] == "passes"
    assert compare(replace(case, data=(([X], [X, X]),)), 0)["plain"]["verdict"] == "differs"

"""The bench of policies with and without messages."""

import json
from pathlib import Path

import pytest

from gnnplace.bench.harness import BenchOptions
from gnnplace.bench.ladder.encoder import LIMITS, EncoderRun, bench_encoder, comparisons, plan_alone, seconds_of
from gnnplace.errors import GnnplaceError
from gnnplace.planners.solution import Budget
from gnnplace.policy.checkpoint import save_policy
from gnnplace.policy.network import PolicyConfig, build_policy
from gnnplace.sim.example import diamond

CASE = "wavefront_16x16 50 on servers-4x4"


def run_of(policy: str, case: str, way: str = "search") -> EncoderRun:
    return EncoderRun(case, policy, way, 20, 0, "" if policy == "gnn-prior" else "abc")


def test_kinds_are_compared_over_all_trainings_and_training_by_training() -> None:
    values = {
        run_of("means-0", "x"): 1.0, run_of("means-1", "x"): 4.0, run_of("none-0", "x"): 4.0, run_of("none-1", "x"): 4.0,
        run_of("gnn-prior", "x"): 4.0, run_of("means-0", "y"): None, run_of("means-1", "y"): 1.0,
        run_of("none-0", "y"): 2.0, run_of("none-1", "y"): 2.0, run_of("gnn-prior", "y"): 1.0,
    }  # fmt: skip
    found = {run: {"objective_s": value, "wall_s": 0.1} for run, value in values.items()}
    assert seconds_of(found)["means", "search", 20] == {"x": 2.0, "y": None}
    summary = comparisons(found, ["means", "none"], {"x": "one", "y": "two"})
    assert summary["means_to_none_search@20"]["excess"] == pytest.approx(-0.5)
    assert summary["means_to_none_search@20_training_0"]["excess"] == pytest.approx(-0.75)
    assert summary["means_to_none_search@20_training_1"]["excess"] == pytest.approx(0.5**0.5 - 1)
    assert summary["none_to_gnn-prior_search@20_training_0"]["excess"] == pytest.approx(2**0.5 - 1)
    assert not any("alone" in name or "@50" in name for name in summary)


def test_policies_of_a_folder_run_alone_and_in_the_search(tmp_path: Path) -> None:
    for name, messages in (("means-0", True), ("none-0", False)):
        config = PolicyConfig(hidden=8, rounds=1, message_passing=messages)
        save_policy(tmp_path / f"{name}.safetensors", build_policy(0, config), {})
    result = bench_encoder(BenchOptions(only=(CASE,), policy=tmp_path, rows=("none", "heft")))
    assert [(row["policy"], row["way"], row["limit"]) for row in result.rows] == [
        *(("none", way, limit) for way in ("alone", "search") for limit in LIMITS), ("heft", "alone", 1)
    ]  # fmt: skip
    above = {(row["way"], row["limit"]): row["above_record"] for row in result.rows if row["policy"] == "none"}
    assert all(row["above_record"] >= 0 for row in result.rows)
    assert above["search", 200] < above["alone", 200]  # untrained: the constructions help
    json.dumps(result.document(), allow_nan=False)
    one_way = bench_encoder(BenchOptions(only=(CASE,), policy=tmp_path, rows=("means", "heft", "alone")))
    assert {(row["policy"], row["way"]) for row in one_way.rows} == {("means", "alone"), ("heft", "alone")}


def test_alone_the_first_schedule_needs_no_choice() -> None:
    assert plan_alone(diamond(), Budget(1), 0).objective_s == plan_alone(diamond(), Budget(1), 1).objective_s
    with pytest.raises(GnnplaceError, match="the policy 'prior' builds no schedules"):
        plan_alone(diamond(), Budget(1), 0, "prior")


def test_a_folder_without_policies_and_unknown_kinds_are_errors(tmp_path: Path) -> None:
    with pytest.raises(GnnplaceError, match="holds no policies NAME-SEED"):
        bench_encoder(BenchOptions(policy=tmp_path))
    (tmp_path / "means-0.safetensors").write_bytes(b"")
    with pytest.raises(GnnplaceError, match="there is no kind of policy, or way 'others'; known are means, heft"):
        bench_encoder(BenchOptions(policy=tmp_path, rows=("others",)))

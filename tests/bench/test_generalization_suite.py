"""Rows of the generalization bench, what is kept of them, and a whole small run."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from gnnplace.bench.generalization.earlier import take_over
from gnnplace.bench.generalization.rows import (
    ABLATIONS,
    ROWS,
    Variant,
    chosen_rows,
    fingerprint,
    gnn_config,
    planner_of,
    policy_of,
)
from gnnplace.bench.generalization.run import FACTS, Run, run_result, setting_of_case
from gnnplace.bench.generalization.suite import bench_generalization
from gnnplace.bench.options import BenchOptions
from gnnplace.bench.result import library_versions, write_result
from gnnplace.bench.suites import run_suite
from gnnplace.errors import GnnplaceError
from gnnplace.planners.budget import Budget
from gnnplace.policy.checkpoint import save_policy
from gnnplace.policy.network import build_policy

CASE = "ssd_300 50 on k40x5 types 0.4"


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A policy that nobody has trained."""
    path = tmp_path / "some.safetensors"
    save_policy(path, build_policy(3), {})
    return path


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    """Of the case."""
    return run_result(Run(CASE, FACTS, 0, ""), {})


def keep(path: Path, found: dict[Run, dict[str, Any]]) -> Path:
    entries = [{"case": vars(run), "versions": library_versions(), "result": result} for run, result in found.items()]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    return path


def result(seconds: float) -> dict[str, Any]:
    return {
        "objective_s": seconds, "feasible": True, "error": None, "evaluations": 1, "wall_s": 1.0, "stages": [],
    }  # fmt: skip


def test_every_budget_and_variant_that_is_to_be_compared_has_a_row() -> None:
    counts = {name: row.evaluations for name, row in ROWS.items() if "@" in name}
    assert counts == {
        "annealing@200": 200, "annealing@1000": 1000, "annealing@2000": 2000, "annealing@5000": 5000,
        "annealing@50000": 50_000, "annealing@500000": 500_000,
        **{f"{name}@{count}": count for name in ("gnn", "gnn-untrained") for count in (200, 1000, 2000, 5000)},
    }  # fmt: skip
    assert {row.seconds for row in ROWS.values() if row.planner == "gnn"} == {None, 10.0, 60.0}
    assert {f"gnn-{ablation}" for ablation in (*ABLATIONS, "no-lookahead", "every-step", "fine-tuned")} <= set(ROWS)
    assert ROWS["gnn-zero-shot"].budget(50).evaluations == ROWS["gnn-untrained"].budget(50).evaluations == 1000
    assert ROWS["greedy"].budget(50) == Budget(None, None)


def test_a_row_that_there_is_not_is_refused() -> None:
    with pytest.raises(GnnplaceError, match="there is no row 'anealing'"):
        chosen_rows(["anealing"])


def test_a_result_hangs_on_the_content_of_its_policy_and_on_nothing_else_of_it(policy: Path, tmp_path: Path) -> None:
    renamed, other = tmp_path / "other-name.safetensors", tmp_path / "other.safetensors"
    renamed.write_bytes(policy.read_bytes())
    save_policy(other, build_policy(4), {})
    row = ROWS["gnn-zero-shot"]
    assert fingerprint(row, policy) == fingerprint(row, renamed) != fingerprint(row, other)
    assert len({fingerprint(row, policy_of(row, policy)) for row in ROWS.values() if row.policy in (None, "")}) == sum(
        row.policy in (None, "") for row in ROWS.values()
    )


def test_an_ablation_has_a_policy_of_its_own_beside_the_other(policy: Path) -> None:
    assert policy_of(ROWS["gnn-final-reward"], policy) == policy.with_name("some-final-reward.safetensors")
    assert policy_of(ROWS["gnn-zero-shot"], policy) == policy
    assert policy_of(ROWS["gnn-untrained"], policy) is None


def test_the_variants_of_the_improver_differ_and_each_takes_the_policy(policy: Path) -> None:
    configs = [gnn_config(variant, policy) for variant in get_args(Variant)]
    assert len({repr(config) for config in configs}) == len(configs)
    assert {config.policy for config in configs} == {policy}


def test_every_variant_of_the_improver_places_a_case(policy: Path) -> None:
    problem = setting_of_case(CASE).problem()
    single_s = planner_of(ROWS["single"], None)(problem, Budget(None), 0).objective_s
    for name in ("gnn-untrained", "gnn-zero-shot", "gnn@200", "gnn-fine-tuned", "gnn-no-lookahead", "gnn-every-step"):
        solution = planner_of(ROWS[name], policy_of(ROWS[name], policy))(problem, Budget(60), 0)
        assert solution.evaluations <= 60
        assert solution.objective_s <= single_s


def test_facts_say_what_training_has_not_seen(facts: dict[str, Any]) -> None:
    assert (facts["groups"], facts["num_devices"], facts["unseen_count"]) == (50, 6, True)
    assert facts["unlike_training"] == ["6 devices"]
    assert "NonMaxSuppression" in facts["unseen_types"]
    assert facts["lower_bound"]["value_s"] > 0


def test_a_row_on_a_case_is_not_below_the_lower_bound(facts: dict[str, Any]) -> None:
    found = run_result(Run(CASE, "heft", 0, ""), {})
    assert found["feasible"]
    assert found["objective_s"] >= facts["lower_bound"]["value_s"]


def test_what_is_kept_is_not_run_again_and_a_new_policy_makes_its_rows_new(
    policy: Path, tmp_path: Path, facts: dict[str, Any]
) -> None:
    old, rows = tmp_path / "old.safetensors", ("single", "heft", "gnn-zero-shot")
    save_policy(old, build_policy(5), {})
    kept = keep(
        tmp_path / "out.json.cases",
        {
            Run(CASE, FACTS, 0, ""): facts,
            Run(CASE, "heft", 0, fingerprint(ROWS["heft"], None)): result(1e-3),
            Run(CASE, "gnn-zero-shot", 0, fingerprint(ROWS["gnn-zero-shot"], old)): result(1e-4),
        },
    )
    said: list[str] = []
    options = BenchOptions(0, None, 1, (CASE,), rows, policy, 1, kept, said.append)
    found = bench_generalization(options)
    seconds = {name: runs[0]["objective_s"] for name, runs in found.details["cases"][CASE]["results"].items()}
    assert seconds["heft"] == 1e-3  # made up, so kept
    assert seconds["gnn-zero-shot"] > 1e-3  # run with the new policy
    assert seconds["single"] > 1e-3
    assert [line["row"] for line in found.rows] == list(rows)
    assert len(said) == 2
    assert len(kept.read_text(encoding="utf-8").splitlines()) == 5
    path = tmp_path / "out.json"
    write_result(found, path)
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["command"] == (
        f"gnnplace bench generalization --seed 0 --seeds 1 --rows {','.join(rows)} --policy some.safetensors --only '{CASE}'"
    )
    assert document["details"]["unseen"]["6 devices"]["cases"] == [CASE]
    assert bench_generalization(options).rows == found.rows  # all of it from what is kept
    assert len(said) == 2


def test_a_stored_result_is_extended_by_what_it_lacks(policy: Path, tmp_path: Path, facts: dict[str, Any]) -> None:
    stored, kept = tmp_path / "out.json", tmp_path / "out.json.cases"
    heft = Run(CASE, "heft", 0, fingerprint(ROWS["heft"], None))
    keep(tmp_path / "first", {Run(CASE, FACTS, 0, ""): facts, heft: result(1e-3)})
    write_result(
        bench_generalization(BenchOptions(0, None, 1, (CASE,), ("heft",), policy, 1, tmp_path / "first")), stored
    )
    kept.write_text('{"case": {"ca', encoding="utf-8")  # cut off by a kill
    said: list[str] = []
    found = bench_generalization(
        BenchOptions(0, None, 1, (CASE,), ("single", "heft"), policy, 1, kept, said.append, stored)
    )
    lines = found.details["cases"][CASE]["results"]
    assert lines["heft"][0]["objective_s"] == 1e-3  # made up, so taken over
    assert [line.split(": ")[1] for line in said] == ["single seed 0"]
    with pytest.raises(GnnplaceError, match="add --out FILE"):
        take_over(stored, None)
    (tmp_path / "kept").write_text("{}", encoding="utf-8")
    with pytest.raises(GnnplaceError, match="kept: is no result of bench generalization"):
        take_over(tmp_path / "kept", kept)


def test_rows_without_their_policy_are_left_out_with_a_note(
    policy: Path, tmp_path: Path, facts: dict[str, Any]
) -> None:
    kept = keep(tmp_path / "kept", {Run(CASE, FACTS, 0, ""): facts})
    found = bench_generalization(BenchOptions(0, None, 1, (CASE,), ("gnn-final-reward",), policy, 1, kept))
    assert found.details["left_out"] == [
        "gnn-final-reward is left out: there is no some-final-reward.safetensors beside the policy"
    ]
    with pytest.raises(GnnplaceError, match="there is no such policy"):
        bench_generalization(BenchOptions(policy=tmp_path / "none.safetensors"))


def test_the_suite_takes_no_number_of_evaluations_as_every_row_has_its_own() -> None:
    with pytest.raises(GnnplaceError, match="bench generalization: takes no --evaluations"):
        run_suite("generalization", BenchOptions(evaluations=5))

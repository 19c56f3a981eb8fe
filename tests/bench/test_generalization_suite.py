"""Rows of the generalization bench, stored runs, and a whole small run."""

import json
from pathlib import Path
from typing import Any

import pytest

from gnnplace.bench.generalization.rows import ABLATIONS, ROWS, fingerprint, planner_of, policy_of
from gnnplace.bench.generalization.run import FACTS, Run, run_result, setup_of_case
from gnnplace.bench.generalization.suite import bench_generalization, take_over
from gnnplace.bench.harness import BenchOptions, write_result
from gnnplace.errors import GnnplaceError
from gnnplace.planners.solution import Budget
from gnnplace.policy import SHIPPED_POLICY
from gnnplace.policy.checkpoint import save_policy
from gnnplace.policy.network import build_policy
from tests.finished_cases import write_cases

CASE = "ssd_300 50 on k40x5 types 0.4"
STORED = Path(__file__).parents[2] / "notebooks" / "results" / "bench-generalization.json"


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """An untrained policy."""
    path = tmp_path / "some.safetensors"
    save_policy(path, build_policy(3), {})
    return path


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    """Facts of the case."""
    return run_result(Run(CASE, FACTS, 0, ""), {})


def result(seconds: float) -> dict[str, Any]:
    return {
        "objective_s": seconds, "feasible": True, "error": None, "evaluations": 1, "wall_s": 1.0, "stages": [],
    }  # fmt: skip


def test_every_ablation_has_a_row_and_zero_shot_searches_have_a_budget_per_group() -> None:
    assert {f"gnn-{ablation}" for ablation in (*ABLATIONS, "no-lookahead", "every-step", "fine-tuned")} <= set(ROWS)
    assert ROWS["gnn-zero-shot"].budget(50).evaluations == 1000
    assert ROWS["greedy"].budget(50) == Budget(None, None)


def test_a_fingerprint_depends_on_the_content_of_the_policy_and_not_on_its_name(policy: Path, tmp_path: Path) -> None:
    renamed, other = tmp_path / "other-name.safetensors", tmp_path / "other.safetensors"
    renamed.write_bytes(policy.read_bytes())
    save_policy(other, build_policy(4), {})
    row = ROWS["gnn-zero-shot"]
    assert fingerprint(row, policy) == fingerprint(row, renamed) != fingerprint(row, other)
    rows = [row for row in ROWS.values() if row.policy in (None, "")]
    assert len({fingerprint(row, policy_of(row, policy)) for row in rows}) == len(rows)


@pytest.mark.skipif(not STORED.exists(), reason="results stay in the repository")
def test_runs_of_the_stored_result_are_those_of_this_version() -> None:
    keys = {
        (row, line["depends_on"])
        for case in json.loads(STORED.read_text(encoding="utf-8"))["details"]["cases"].values()
        for row, lines in case["results"].items()
        for line in lines
    }
    assert len(keys) > 20
    assert keys == {(name, fingerprint(ROWS[name], policy_of(ROWS[name], SHIPPED_POLICY))) for name, _ in keys}


def test_an_ablation_has_a_policy_of_its_own_beside_the_main_one(policy: Path) -> None:
    assert policy_of(ROWS["gnn-final-reward"], policy) == policy.with_name("some-final-reward.safetensors")
    assert policy_of(ROWS["gnn-zero-shot"], policy) == policy
    assert policy_of(ROWS["annealing@200"], policy) is None


def test_every_variant_of_the_improver_differs_and_places_a_case(policy: Path) -> None:
    problem = setup_of_case(CASE).problem()
    single_s = planner_of(ROWS["single"], None)(problem, Budget(None), 0).objective_s
    configs = set()
    for name in ("gnn-zero-shot", "gnn-fine-tuned", "gnn-no-lookahead", "gnn-every-step"):
        plan = planner_of(ROWS[name], policy_of(ROWS[name], policy))
        configs.add(repr(plan.keywords["config"]))  # type: ignore[attr-defined]
        solution = plan(problem, Budget(60), 0)
        assert solution.evaluations <= 60
        assert solution.objective_s <= single_s
    assert len(configs) == 4


def test_facts_list_the_differences_to_training(facts: dict[str, Any]) -> None:
    assert (facts["groups"], facts["num_devices"], facts["unseen_count"]) == (50, 6, True)
    assert facts["unlike_training"] == ["6 devices"]
    assert "NonMaxSuppression" in facts["unseen_types"]
    found = run_result(Run(CASE, "heft", 0, ""), {})
    assert found["feasible"]
    assert found["objective_s"] >= facts["lower_bound"]["value_s"] > 0


def test_finished_runs_are_not_run_again_and_a_new_policy_makes_its_rows_new(
    policy: Path, tmp_path: Path, facts: dict[str, Any]
) -> None:
    old, rows = tmp_path / "old.safetensors", ("single", "heft", "gnn-zero-shot")
    save_policy(old, build_policy(5), {})
    runs = {
        Run(CASE, FACTS, 0, ""): facts,
        Run(CASE, "heft", 0, fingerprint(ROWS["heft"], None)): result(1e-3),
        Run(CASE, "gnn-zero-shot", 0, fingerprint(ROWS["gnn-zero-shot"], old)): result(1e-4),
    }
    cases_file = write_cases(tmp_path / "out.json.cases", runs)
    lines: list[str] = []
    options = BenchOptions(0, None, 1, (CASE,), rows, policy, 1, cases_file, lines.append)
    found = bench_generalization(options)
    seconds = {name: runs[0]["objective_s"] for name, runs in found.details["cases"][CASE]["results"].items()}
    assert seconds["heft"] == 1e-3  # made up, so taken from the file
    assert seconds["gnn-zero-shot"] > 1e-3  # run with the new policy
    assert seconds["single"] > 1e-3
    assert [line["row"] for line in found.rows] == list(rows)
    assert len(lines) == 2
    assert len(cases_file.read_text(encoding="utf-8").splitlines()) == 5
    assert found.document()["details"]["unseen"]["6 devices"]["cases"] == [CASE]
    assert bench_generalization(options).rows == found.rows  # all of it from the file
    assert len(lines) == 2


def test_a_stored_result_is_extended_by_the_missing_runs(policy: Path, tmp_path: Path, facts: dict[str, Any]) -> None:
    stored, cases_file = tmp_path / "out.json", tmp_path / "out.json.cases"
    heft = Run(CASE, "heft", 0, fingerprint(ROWS["heft"], None))
    first = write_cases(tmp_path / "first", {Run(CASE, FACTS, 0, ""): facts, heft: result(1e-3)})
    write_result(bench_generalization(BenchOptions(0, None, 1, (CASE,), ("heft",), policy, 1, first)), stored)
    cases_file.write_text('{"case": {"ca', encoding="utf-8")  # cut off by a kill
    lines: list[str] = []
    found = bench_generalization(
        BenchOptions(0, None, 1, (CASE,), ("single", "heft"), policy, 1, cases_file, lines.append, stored)
    )
    assert found.details["cases"][CASE]["results"]["heft"][0]["objective_s"] == 1e-3  # made up, so taken over
    assert [line.split(": ")[1] for line in lines] == ["single seed 0"]
    with pytest.raises(GnnplaceError, match="add --out FILE"):
        take_over(stored, None)
    (tmp_path / "other").write_text("{}", encoding="utf-8")
    with pytest.raises(GnnplaceError, match="other: is no result of bench generalization"):
        take_over(tmp_path / "other", cases_file)


def test_rows_without_their_policy_are_left_out_with_a_note(
    policy: Path, tmp_path: Path, facts: dict[str, Any]
) -> None:
    cases_file = write_cases(tmp_path / "cases", {Run(CASE, FACTS, 0, ""): facts})
    found = bench_generalization(BenchOptions(0, None, 1, (CASE,), ("gnn-final-reward",), policy, 1, cases_file))
    (note,) = found.details["left_out"]
    assert "some-final-reward.safetensors" in note
    with pytest.raises(GnnplaceError, match="there is no such policy"):
        bench_generalization(BenchOptions(policy=tmp_path / "none.safetensors"))

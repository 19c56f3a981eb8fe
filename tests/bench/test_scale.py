"""The bench of large graphs: its cases have the sizes that they state, and its figures are of the stages that they name."""

from mmap import mmap
from typing import Any

import numpy as np
import pytest

from gnnplace.bench import scale
from gnnplace.bench.harness import BenchOptions
from gnnplace.bench.scale import ONNX, Case, graph_of, run_case, stage


@pytest.mark.parametrize("case", [Case("layered", 3_000), Case("ptb_cell_00:training", 10_000)], ids=str)
def test_a_graph_has_about_the_size_of_its_case(case: Case) -> None:
    assert graph_of(case).num_ops == pytest.approx(case.ops, rel=0.3)


def test_towers_share_nothing_but_their_input_and_their_sum() -> None:
    graph = graph_of(Case("ptb_cell_00:training", 4_000))
    copies = {name.split("/", 1)[0] for name in graph.op_names if "/" in name}
    assert len(copies) == 3
    tower = np.array([name.split("/", 1)[0] for name in graph.op_names])
    source, target = graph.edges
    crossing = tower[source] != tower[target]
    assert set(tower[source[crossing]].tolist()) == {"input", "0", "1", "2"}
    assert set(tower[target[crossing & (tower[source] != "input")]].tolist()) == {"sum"}
    assert len(graph.colocation_names) % 3 == 0


def test_each_stage_has_its_own_memory_peak() -> None:
    row: dict[str, Any] = {}
    with stage(row, "large"), mmap(-1, 2**26) as block:  # an array may reuse memory of the process
        for _ in range(2**6):
            block.write(bytes(2**20))
    with stage(row, "small"):
        pass
    assert row["large_peak_bytes"] - row["small_peak_bytes"] > 2**25


def test_a_case_has_time_and_memory_of_every_stage_and_annealing_runs_for_the_same_time() -> None:
    row = run_case(Case("layered", 1_000, "v100x2", evaluations=60))
    for name in ("import", "prepare", "evaluate", "place", "save"):
        assert row[f"{name}_s"] > 0
        assert row[f"{name}_peak_bytes"] > 2**20
    assert row["total_s"] == row["import_s"] + row["place_s"]
    assert row["lower_bound_s"] <= row["makespan_s"] <= row["heft_makespan_s"]
    assert row["annealing_ops_makespan_s"] >= row["lower_bound_s"]
    assert row["annealing_groups_makespan_s"] >= row["lower_bound_s"]


def test_an_onnx_file_is_only_read() -> None:
    row = run_case(Case(ONNX, 500))
    assert 500 <= row["ops"] <= 530
    assert "place_s" not in row
    assert row["import_s"] > 0


def test_the_summary_has_slopes_by_family_and_ratios_to_the_best_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def made_up(case: Case) -> dict[str, object]:
        if case.family == ONNX:
            return {"case": case.name, "family": ONNX, "ops": case.ops, "import_s": case.ops * 1e-3}
        return {
            "case": case.name, "family": case.family, "devices": case.devices, "ops": case.ops, "import_s": 1.0, "gap": 0.1,
            "gnn_s": case.ops**1.5, "place_s": 1.0, "total_s": 2.0 * case.ops, "makespan_s": 9.0, "heft_makespan_s": 20.0,
            "annealing_groups_makespan_s": 12.0 if case.annealing else None, "annealing_ops_makespan_s": 10.0 if case.annealing else None,
        }  # fmt: skip

    monkeypatch.setattr(scale, "run_cases", lambda cases, *_, **__: {case: made_up(case) for case in cases})
    summary = scale.bench_scale(BenchOptions()).summary
    assert summary["slope gnn_s layered"] == pytest.approx(1.5)
    assert summary["slope total_s layered"] == pytest.approx(1.0)
    assert summary["slope import_s onnx"] == pytest.approx(1.0)
    assert summary["worst_ratio_to_others"] == pytest.approx(0.9)

"""The bench of sets of cores."""

from gnnplace.bench.cores import CoresCase, case_result, cores_summary


def test_an_op_may_take_one_core_or_several_and_the_answer_is_never_worse_than_all_cores_together() -> None:
    row = case_result(CoresCase("cifar_cell_00", 1, 4, seed=0, evaluations=300))
    assert row["devices"] == 7
    assert row["lower_bound_s"] <= row["gnn_s"] <= row["best_set_s"] <= row["all_cores_s"] < row["one_core_s"]
    assert row["gnn_s"] < 0.95 * row["all_cores_s"]  # branches of short kernels run side by side
    assert sum(row["ops_by_cores"].values()) == row["ops"]
    summary = cores_summary([{"model": "m", "batch": 1, "cores": 4, **row}])
    assert summary["gnn_slower_than_all_cores"] == 0
    assert summary["speed_up_over_all_cores_most"].endswith("(m, batch 1, 4 cores)")

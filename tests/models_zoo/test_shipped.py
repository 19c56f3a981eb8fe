"""The shipped manifest is correct and has an op graph for every row."""

from pathlib import Path

import pytest

from models_zoo.networks import shipped
from models_zoo.networks.catalog import FAMILIES, GENERATED, recipes_of
from models_zoo.networks.publish import MAX_GENERATED_OPS

ROWS = {row.key: row for row in shipped.manifest()}
SHIPPED = [key for key in ROWS if shipped.has_structure(key)]
MOST_BYTES = 30e6


def test_the_manifest_has_a_row_for_everything_in_the_catalog() -> None:
    expected = {
        recipe.name + suffix
        for family in FAMILIES
        for recipe in recipes_of(family).values()
        for suffix in ("", ":training")[: 1 + recipe.trains]
    }
    assert set(ROWS) == expected


def test_the_split_separates_families() -> None:
    assert {(row.family, row.split) for row in ROWS.values()} == {
        (name, entry.split) for name, entry in FAMILIES.items()
    }
    assert {entry.split for entry in FAMILIES.values()} == {"train", "test", "sealed"}


def test_settings_in_the_manifest_are_those_of_the_recipes() -> None:
    for row in ROWS.values():
        assert row.settings == vars(recipes_of(row.family)[row.name].settings), row.key


def test_exports_agree_with_torch_as_far_as_torch_with_itself() -> None:
    for row in ROWS.values():
        if row.family not in GENERATED:
            assert row.torch_error is not None
            assert row.torch_error <= max(1e-4, 2 * (row.torch_noise or 0.0)), row.key


@pytest.mark.parametrize("key", SHIPPED)
def test_a_shipped_op_graph_is_the_one_of_the_manifest(key: str) -> None:
    graph, row = shipped.read_structure(key), ROWS[key]
    assert (graph.num_ops, len(graph.edges[0])) == (row.ops, row.edges)
    assert float(graph.flops.sum()) == pytest.approx(row.flops)
    assert graph.total_weight_bytes == row.parameter_bytes


def test_only_large_generated_graphs_do_not_ship() -> None:
    assert {key for key, row in ROWS.items() if row.family not in GENERATED or row.ops <= MAX_GENERATED_OPS} == set(
        SHIPPED
    )


def test_all_op_graphs_together_stay_small() -> None:
    folder = Path(shipped.__file__).parent / "structures"
    files = list(folder.iterdir())
    assert {file.name for file in files} == {f"{key.replace(':', '.')}.json.gz" for key in SHIPPED}
    assert sum(file.stat().st_size for file in files) <= MOST_BYTES


def test_a_translation_step_is_as_large_as_the_papers() -> None:
    assert ROWS["nmt_8:training"].ops >= 5_000


def test_no_shipped_training_step_sums_over_repeated_indices_where_threads_lose_some() -> None:
    """ONNX Runtime's ScatterND does, on several threads (its issue 23396); strided slices have no repeated indices."""
    for key, row in ROWS.items():
        if row.training and row.family != "cifar_cells":
            assert "ScatterND" not in shipped.read_structure(key).op_types, key

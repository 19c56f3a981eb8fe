"""Every recipe's small variant: ONNX that computes what torch computes, whole and cut over two devices."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gnnplace.bench.zoo import try_recipe
from gnnplace.errors import UnsupportedModel
from models_zoo.networks import build
from models_zoo.networks.build import build_onnx
from models_zoo.networks.catalog import FAMILIES, GENERATED, load_recipe, recipes_of
from models_zoo.networks.export.comparison import Case, Comparison, compare, inference_case, training_case
from models_zoo.networks.recipe import Recipe, TorchNetwork
from models_zoo.networks.zoo_name import parse_zoo_name

LARGE_STEPS = {"inception_v3"}
"""Recipes whose training steps take the longest, and have the convolutions, pools and branches of other recipes."""


def shallow(recipe: Recipe) -> Recipe:
    """The recipe whose small variant has one layer if it is a transformer, as the export of another one takes as long again."""
    if not hasattr(recipe.small, "heads") or not hasattr(recipe.small, "layers"):
        return recipe
    return dataclasses.replace(recipe, small=dataclasses.replace(recipe.small, layers=1))


def small_set() -> list[tuple[str, bool]]:
    """Every recipe, but one of those that differ in depth or random cells, or whose small variants are equal; the bench goes through all."""
    different: dict[object, Recipe] = {}
    for family in FAMILIES:
        for recipe in () if family in GENERATED else recipes_of(family).values():
            different.setdefault(recipe.name.rstrip("_0123456789"), recipe)
    different = {(recipe.make, repr(recipe.small)): recipe for recipe in reversed(different.values())}
    return [
        (recipe.name, training)
        for recipe in reversed(different.values())
        for training in (False, True)[: 1 + (recipe.trains and recipe.name not in LARGE_STEPS)]
    ]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of libraries among themselves
@pytest.mark.parametrize(("name", "training"), small_set())
def test_a_recipe_computes_what_torch_computes_whole_and_in_parts(name: str, training: bool, tmp_path: Path) -> None:
    row = try_recipe(shallow(load_recipe(name)), training, tmp_path)
    assert row["torch_error"] <= 1e-4
    assert row["placed_error"] <= 1e-4
    assert row["segments"] > 1
    assert not [warning for warning in row["warnings"] if "no cost is known" in warning]
    if training:  # the loss, and at least one gradient
        assert row["torch_outputs"] >= 2


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    recipe = load_recipe("rnnlm_2")
    return dataclasses.replace(recipe, small=dataclasses.replace(recipe.small, layers=1, steps=1))


def test_the_same_seed_gives_the_same_file_and_another_seed_another(recipe: Recipe, tmp_path: Path) -> None:
    built = [build_onnx(recipe, recipe.small, False, tmp_path / f"{i}.onnx", seed) for i, seed in enumerate((0, 0, 1))]
    hashes = [each.content_sha256 for each in built]
    assert hashes[0] == hashes[1] != hashes[2]


def test_nothing_of_the_machine_is_written(recipe: Recipe, tmp_path: Path) -> None:
    build_onnx(recipe, recipe.small, True, tmp_path / "m.onnx")
    content = (tmp_path / "m.onnx").read_bytes()
    assert str(Path(__file__).parents[2]).encode() not in content
    assert b"site-packages" not in content


def test_an_export_that_computes_something_else_is_refused(recipe: Recipe, tmp_path: Path) -> None:
    build_onnx(recipe, recipe.small, False, tmp_path / "m.onnx")
    network = recipe.build(recipe.small)
    assert isinstance(network, TorchNetwork)
    case = inference_case(network)
    wrong = Case(case.inputs, {name: value * 1.001 for name, value in case.expected.items()})
    with pytest.raises(UnsupportedModel, match="'logits' differs from torch by"):
        compare(tmp_path / "m.onnx", wrong, "rnnlm")


def test_the_training_case_is_torchs_own_step(recipe: Recipe) -> None:
    network = recipe.build(recipe.small)
    assert isinstance(network, TorchNetwork)
    case = training_case(network)
    name = "softmax.bias"
    gradient = case.expected[f"{name}.momentum.new"]
    assert gradient.any()
    assert case.expected[f"{name}.new"] == pytest.approx(case.inputs[name] - 0.1 * gradient)
    assert case.expected["loss"] == pytest.approx(3.9, abs=0.5)  # ln(50) for 50 words and no knowledge


def test_settings_change_the_network_and_bad_ones_are_named(recipe: Recipe) -> None:
    assert recipe.at("small", {"layers": "3"}).layers == 3
    for changes, message in (
        ({"depth": "3"}, "no setting 'depth'; known are layers, hidden"),
        ({"layers": "three"}, "layers is 'three'; expected int"),
        ({"layers": "0"}, "expected more than 0"),
    ):
        with pytest.raises(UnsupportedModel, match=message):
            recipe.at("small", changes)


@pytest.mark.parametrize("text", ["rnnlm_2:trainning", "rnnlm_2:=3", "rnnlm_2:layers="])
def test_a_malformed_zoo_name_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedModel, match="is not understood; expected NAME"):
        parse_zoo_name(text)


def test_a_zoo_name_has_one_form() -> None:
    assert parse_zoo_name("a:y=2:small:x=1:training").key == "a:training:small:x=1:y=2"


def test_a_misspelt_recipe_gets_the_nearest_name_as_a_suggestion() -> None:
    with pytest.raises(UnsupportedModel, match="did you mean 'rnnlm_2'"):
        load_recipe("rnnlm2")


@pytest.mark.parametrize(("training", "tries"), [(True, 3), (False, 1)])
def test_a_step_that_never_agrees_is_tried_on_a_few_draws_and_then_refused_and_leaves_nothing(
    training: bool, tries: int, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = []

    def refuse(_: Path, case: Case, where: str, __: object) -> None:
        losses.append(float(next(iter(case.expected.values())).ravel()[0]))
        raise UnsupportedModel(f"{where}: differs")

    monkeypatch.setattr(build, "compare", refuse)
    with pytest.raises(UnsupportedModel, match="differs"):
        build_onnx(recipe, recipe.small, training, tmp_path / "m.onnx")
    assert len(set(losses)) == len(losses) == tries
    assert not list(tmp_path.iterdir())


def test_a_step_that_agrees_on_the_second_draw_is_kept_with_the_batch_of_its_own_seed(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build_onnx(recipe, recipe.small, True, tmp_path / "first.onnx")
    calls = iter((True, False))

    def refuse_once(model: Path, case: Case, where: str, noise: Callable[[int], float]) -> Comparison:
        if next(calls):
            raise UnsupportedModel(f"{where}: differs")
        return compare(model, case, where, noise)

    monkeypatch.setattr(build, "compare", refuse_once)
    second = build_onnx(recipe, recipe.small, True, tmp_path / "second.onnx")
    assert second.comparison.relative_error <= 1e-4
    assert second.content_sha256 == first.content_sha256
    assert all((second.case.inputs[name] == value).all() for name, value in first.case.inputs.items())

"""The families and their recipes: one file and one line add a family."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

from gnnplace.errors import MissingDependency, UnsupportedModel, did_you_mean
from models_zoo.networks.shipped import manifest, zoo_names

if TYPE_CHECKING:
    from models_zoo.networks.recipe import Recipe

Split = Literal["train", "test", "sealed"]


@dataclass(frozen=True)
class Family:
    """Recipes of one kind, in one module's `RECIPES`."""

    module: str
    """Below `models_zoo.networks`."""
    split: Split
    """Whole families are held out: a policy that was trained on one split has seen nothing like the others. Development looks at the
    split `test`; nobody looks at results on the split `sealed` before the last run of a bench."""


FAMILIES: Mapping[str, Family] = {
    "rnnlm": Family("papers.rnnlm", "train"),
    "nmt": Family("papers.nmt", "test"),
    "ptb_cells": Family("papers.ptb_cells", "train"),
    "inception_v3": Family("papers.inception_v3", "test"),
    "resnet": Family("papers.resnet", "train"),
    "cifar_cells": Family("papers.cifar_cells", "train"),
    "ensemble": Family("branched.ensemble", "train"),
    "two_tower": Family("branched.two_tower", "train"),
    "dlrm": Family("branched.dlrm", "train"),
    "moe": Family("branched.moe", "test"),
    "nasnet": Family("branched.nasnet", "test"),
    "unet": Family("branched.unet", "test"),
    "bert": Family("transformers.bert", "train"),
    "gpt2": Family("transformers.gpt2", "train"),
    "llama": Family("transformers.llama", "test"),
    "t5": Family("transformers.t5", "test"),
    "vit": Family("transformers.vit", "train"),
    "swin": Family("transformers.swin", "test"),
    "whisper": Family("transformers.whisper", "test"),
    "ssm": Family("transformers.mamba", "test"),
    "if": Family("control_flow.if_branch", "train"),
    "scan": Family("control_flow.scan_rnn", "train"),
    "loop": Family("control_flow.loop_decoder", "test"),
    "detection": Family("control_flow.detection", "test"),
    "quantised": Family("control_flow.qdq", "train"),
    "opset9": Family("control_flow.opset9", "train"),
    "layered": Family("generated.layered", "train"),
    "series_parallel": Family("generated.series_parallel", "train"),
    "fork_join": Family("generated.fork_join", "train"),
    "random_dag": Family("generated.random_dag", "train"),
    "wavefront": Family("generated.wavefront", "train"),
    "densenet": Family("branched.densenet", "sealed"),
    "hrnet": Family("branched.hrnet", "sealed"),
    "evoformer": Family("branched.evoformer", "sealed"),
    "relational": Family("branched.relational", "sealed"),
    "wavenet": Family("branched.wavenet", "sealed"),
    "conformer": Family("transformers.conformer", "sealed"),
    "mmdit": Family("transformers.mmdit", "sealed"),
    "factorization": Family("generated.factorization", "sealed"),
    "elimination": Family("generated.elimination", "sealed"),
    "butterfly": Family("generated.butterfly", "sealed"),
    "workflow": Family("generated.workflow", "test"),
    "multipole": Family("generated.multipole", "sealed"),
    "stencil": Family("generated.stencil", "sealed"),
}


GENERATED = frozenset(family for family, entry in FAMILIES.items() if entry.module.startswith("generated."))
"""The families whose recipes give op graphs and no ONNX."""


@cache
def recipes_of(family: str) -> Mapping[str, Recipe]:
    """The recipes of a family by name.

    Raises:
        MissingDependency: a library that builds networks is not installed.
    """
    try:
        module = importlib.import_module(f"models_zoo.networks.{FAMILIES[family].module}")
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.startswith(("models_zoo", "gnnplace")):
            raise
        raise missing_library(missing) from None
    return {recipe.name: recipe for recipe in module.RECIPES}


def missing_library(missing: ModuleNotFoundError) -> MissingDependency:
    """The error for a missing library that builds networks."""
    return MissingDependency(f"building zoo models needs {missing.name}; install it with: pip install 'gnnplace[zoo]'")


def family_of(name: str) -> str:
    """The family of a recipe.

    Raises:
        UnsupportedModel: no family has such a recipe.
        MissingDependency: a library that builds networks is not installed.
    """
    for row in manifest():
        if row.name == name and row.family in FAMILIES:
            return row.family  # without importing what builds the other families
    known = list(zoo_names())
    for family in FAMILIES:
        try:
            recipes = recipes_of(family)
        except MissingDependency:
            if did_you_mean(name, known):
                break  # a slip of the finger needs no library
            raise
        if name in recipes:
            return family
        known.extend(recipes)
    hint = did_you_mean(name, known, "`gnnplace zoo` lists all")
    raise UnsupportedModel(f"zoo:{name}: there is no such zoo model; {hint}")


def load_recipe(name: str) -> Recipe:
    """The recipe of a name.

    Raises:
        UnsupportedModel: there is no such recipe.
        MissingDependency: a library that builds networks is not installed.
    """
    return recipes_of(family_of(name))[name]

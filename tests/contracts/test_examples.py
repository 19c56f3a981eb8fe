"""Every name that users are meant to call shows an example that runs; pytest runs them where they stand."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest

import gnnplace
import gnnplace.cost
import gnnplace.graph
import gnnplace.sim
from gnnplace.planners.catalog import PLANNERS

NEED_A_PROGRAM = {"scotch": "Debian's scotch", "DistributedSession": "a Ray cluster"}


def public() -> Iterator[tuple[str, object]]:
    """The package's own names, the functions of `graph` and `cost`, what `sim` and `devices` offer, every planner."""
    yield from ((name, getattr(gnnplace, name)) for name in gnnplace.__all__ if not name.startswith("__"))
    for room in (gnnplace.graph, gnnplace.cost):
        for module in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
            loaded = importlib.import_module(module.name)
            named = ((name, getattr(loaded, name)) for name in loaded.__all__)
            for name, value in named:
                if callable(value) and not inspect.isclass(value) and getattr(value, "__module__", "") == module.name:
                    yield f"{module.name}.{name}", value
    yield from ((f"gnnplace.sim.{name}", getattr(gnnplace.sim, name)) for name in ("Simulator", "lower_bound"))
    for name, entry in PLANNERS.items():
        yield f"planner {name}", importlib.import_module(entry.module).plan


@pytest.mark.parametrize(("name", "value"), [pytest.param(*pair, id=pair[0]) for pair in public()])
def test_what_users_call_has_an_example(name: str, value: object) -> None:
    example = inspect.getdoc(value) or ""
    assert ">>> " in example
    skipped = "+SKIP" in example
    assert skipped == (name.removeprefix("planner ") in NEED_A_PROGRAM)


def test_the_public_names_are_many() -> None:
    assert len(list(public())) > 50

"""Every name that users are meant to call shows an example that runs; pytest runs them where they stand."""

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from types import ModuleType
from typing import Any

import pytest

import gnnplace
from gnnplace.planners.catalog import PLANNERS, load_planner

ROOMS = ("graph", "devices", "sim")
"""Folders whose entry points, the names that the folder itself offers, are called by users."""
FILES = ("placement", "schedule", "evaluation", "planners.search", "planners.solution")
NOT_RUN = {"DistributedSession", "profile", "scotch", "train"}
"""Names whose example needs a program, measures this machine, or takes minutes."""


def offered(module: ModuleType) -> dict[str, Any]:
    """The public functions and classes that a module defines, except exceptions and protocols."""
    return {
        name: value
        for name, value in vars(module).items()
        if callable(value)
        and not name.startswith("_")
        and getattr(value, "__module__", "") == module.__name__
        and not (is_protocol(value) or is_exception(value))
    }


def is_protocol(value: object) -> bool:
    return getattr(value, "_is_protocol", False)


def is_exception(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception)


def public() -> Iterator[tuple[str, Any]]:
    """What users call: the package's names, every planner, and what planners and evaluators are written with."""
    names = {name: getattr(gnnplace, name) for name in gnnplace.__all__}
    yield from (pair for pair in names.items() if callable(pair[1]) and not is_exception(pair[1]))
    planners = ((name, load_planner(name)) for name in PLANNERS)
    yield from ((name, getattr(planner, "func", planner)) for name, planner in planners)  # some are partial functions
    for room in ROOMS:
        module = importlib.import_module(f"gnnplace.{room}")
        yield from ((f"{room}.{name}", getattr(module, name)) for name in module.__all__)
    for file in FILES:
        module = importlib.import_module(f"gnnplace.{file}")
        yield from ((f"{file}.{name}", value) for name, value in offered(module).items())


def methods(value: type) -> dict[str, Callable[..., object]]:
    """What a class itself defines to be called; properties are read like fields."""
    kinds = (staticmethod, classmethod)
    plain = {name: kept.__func__ if isinstance(kept, kinds) else kept for name, kept in vars(value).items()}
    return {name: kept for name, kept in plain.items() if inspect.isfunction(kept) and not name.startswith("_")}


def example(value: Any) -> str:
    """The docstrings of a name, and of a class's methods, that have an example."""
    texts = [
        inspect.getdoc(part) or "" for part in (value, *(methods(value).values() if inspect.isclass(value) else ()))
    ]
    return "\n".join(text for text in texts if ">>> " in text)


def annotations(value: Any) -> str:
    """All types that a function takes and gives, or that the fields and methods of a class name."""
    parts = (value, value.__init__, *methods(value).values()) if inspect.isclass(value) else (inspect.unwrap(value),)
    return " ".join(str(kind) for part in parts for kind in getattr(part, "__annotations__", {}).values())


def is_record(value: Any) -> bool:
    return inspect.isclass(value) and not methods(value) and (is_dataclass(value) or hasattr(value, "_fields"))


def shown_by_others(value: type) -> bool:
    """A record is shown by the example of what takes or gives it, in its own file."""
    others = offered(importlib.import_module(value.__module__)).values()
    word = re.compile(rf"\b{value.__name__}\b")
    return any(example(other) and word.search(annotations(other)) for other in others if other is not value)


@pytest.mark.parametrize(("name", "value"), [pytest.param(*pair, id=pair[0]) for pair in public()])
def test_what_users_call_has_an_example(name: str, value: Any) -> None:
    text = example(value)
    assert text or (is_record(value) and shown_by_others(value))
    assert ("+SKIP" in text) == (name in NOT_RUN)

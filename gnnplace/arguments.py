"""Checks of what a caller passed: one line that says what it is and what was expected."""

import os
from collections.abc import Sequence

import numpy as np

from gnnplace.errors import GnnplaceError, shown


def check_whole(name: str, value: object, least: int, error: type[GnnplaceError] = GnnplaceError) -> None:
    """Raises `error` unless the value is a whole number from `least` on."""
    if not isinstance(value, int | np.integer) or value < least:
        raise error(f"{name} is {shown(value)}; expected a whole number from {least} on")


def check_number(name: str, value: object) -> None:
    """Raises GnnplaceError unless the value is a number from 0 on."""
    if not isinstance(value, int | float | np.number) or not value >= 0:
        raise GnnplaceError(f"{name} is {shown(value)}; expected a number from 0 on")


def check_function(name: str, value: object) -> None:
    """Raises GnnplaceError unless the value can be called."""
    if not callable(value):
        raise GnnplaceError(f"{name} is {shown(value)}; expected a function")


def check_paths(name: str, value: object) -> None:
    """Raises GnnplaceError unless the value is a list of paths."""
    entries = value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else [None]
    if not all(isinstance(entry, str | os.PathLike) for entry in entries):
        raise GnnplaceError(f"{name} is {shown(value)}; expected a list of files")

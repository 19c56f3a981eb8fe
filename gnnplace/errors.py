"""Every exception that gnnplace raises on purpose: one base class, few children.

A message says what was found, what was expected, which op or device, and what to do next. It is one line that a terminal can show,
whatever the names in it hold.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable

__all__ = [
    "GnnplaceError",
    "InfeasiblePlacement",
    "InvalidAction",
    "InvalidGraph",
    "InvalidInput",
    "InvalidPlacement",
    "InvalidTopology",
    "MeasurementFailed",
    "MissingDependency",
    "ProcessLost",
    "UnsupportedModel",
    "did_you_mean",
    "shown",
]

_LONGEST = 2000


class GnnplaceError(Exception):
    """Base of all errors that a caller can cause and mend."""

    def __str__(self) -> str:
        """The message as one line; names may be as long as they like and hold anything."""
        text = " ".join(super().__str__().split())
        if len(text) > _LONGEST:
            text = f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"
        return text if text.isprintable() else "".join(map(_printable, text))


class InvalidGraph(GnnplaceError):
    """The op graph breaks a rule: a cycle, a repeated name, a cost that is no number."""


class InvalidInput(GnnplaceError, ValueError):
    """A model is run on a value that is missing, unknown, or of another type or rank."""


class InvalidTopology(GnnplaceError):
    """The device set breaks a rule: no device, an unknown link end, a bandwidth of zero."""


class InvalidPlacement(GnnplaceError):
    """The placement does not belong to this graph and these devices, or is illegal on them."""


class UnsupportedModel(GnnplaceError):
    """The file is no model that can be read."""


class InfeasiblePlacement(GnnplaceError):
    """No placement fits, or the placement to be saved or run does not."""


class InvalidAction(GnnplaceError):
    """An environment was given a device that its action mask forbids."""


class MissingDependency(GnnplaceError):
    """An optional package or program is not installed."""


class MeasurementFailed(GnnplaceError):
    """Executing a placement raised, crashed or took longer than allowed."""


class ProcessLost(GnnplaceError):
    """A process that others wait for has ended before its work was done."""


def shown(value: object) -> str:
    """A value of a file for a message: what it looks like, in short, however large or deep it is.

    >>> shown([[[[[1]]]]]), len(shown("n" * 1000))
    ('[[[[[...]]]]]', 120)
    """
    return _SHORT.repr(value)


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """A question with the name that was probably meant; another text where none is close.

    >>> did_you_mean("hefty", ["heft", "gnn"]), did_you_mean("K40", ["k40"]), did_you_mean("x", ["heft"], "see --help")
    ("did you mean 'heft'?", "did you mean 'k40'?", 'see --help')
    """
    names = tuple(known)
    near = difflib.get_close_matches(name, names, n=1) or difflib.get_close_matches(name.lower(), names, n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise


def _printable(sign: str) -> str:
    return sign if sign.isprintable() else sign.encode("unicode_escape").decode()


_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 4, 120, 120, 60

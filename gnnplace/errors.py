"""The exceptions of gnnplace: one base class, few children.

A message names what was found, what was expected, which op or device, and what to do next. It is one printable line,
whatever characters the names in it contain.
"""

import difflib
import reprlib
from collections.abc import Iterable

_LONGEST = 2000


class GnnplaceError(Exception):
    """Base class of all errors that a caller can cause and fix."""

    def __str__(self) -> str:
        """The message as one printable line of bounded length."""
        text = " ".join(super().__str__().split())
        if len(text) > _LONGEST:
            text = f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"
        return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


class InvalidGraph(GnnplaceError):
    """An op graph breaks a rule, for example by a cycle, a repeated name or a cost that is not a number."""


class InvalidInput(GnnplaceError, ValueError):
    """An input value of a model is missing, unknown, or of another type or rank."""


class InvalidTopology(GnnplaceError):
    """A device set breaks a rule, for example by an unknown link end or a bandwidth of zero."""


class InvalidPlacement(GnnplaceError):
    """A placement does not belong to the graph and the devices, or is illegal on them."""


class UnsupportedModel(GnnplaceError):
    """A file is not a model that gnnplace can read."""


class InfeasiblePlacement(GnnplaceError):
    """No placement fits in memory, or the placement to be saved or run does not."""


class InvalidAction(GnnplaceError):
    """An action of an environment is a device that the action mask forbids."""


class MissingDependency(GnnplaceError):
    """An optional package or program is not installed."""


class MeasurementFailed(GnnplaceError):
    """The execution of a placement failed, crashed or exceeded its time limit."""


class ProcessLost(GnnplaceError):
    """A process that others wait for ended before its work was done."""


def shown(value: object) -> str:
    """A short representation of a value for a message, however large or deep the value is."""
    return _SHORT.repr(value)


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """A question with the closest known name, or `otherwise` if none is close."""
    names = tuple(known)
    near = difflib.get_close_matches(name, names, n=1) or difflib.get_close_matches(name.lower(), names, n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise


_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 4, 120, 120, 60

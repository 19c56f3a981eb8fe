"""Every exception that gnnplace raises on purpose: one base class, few children.

A message says what was found, what was expected, which op or device, and what to do next.
"""

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
]


class GnnplaceError(Exception):
    """Base of all errors that a caller can cause and mend."""


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

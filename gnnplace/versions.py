"""Versions of installed distributions."""

from importlib import metadata


def installed_versions(*names: str) -> dict[str, str]:
    """The version of each named distribution that is installed."""
    installed = {name: next(iter(metadata.distributions(name=name)), None) for name in names}
    return {name: found.version for name, found in installed.items() if found is not None}

"""Where the records are, and their names, without the libraries that reading them takes."""

from pathlib import Path

FOLDER = Path(__file__).parent
"""Folder of the records that ship."""


def record_names(folder: Path = FOLDER) -> tuple[str, ...]:
    """Names of all records, sorted.

    >>> "layered_200-k40x4" in record_names()
    True
    """
    return tuple(sorted(path.name.removesuffix(".json") for path in (folder / "cases").glob("*.json")))

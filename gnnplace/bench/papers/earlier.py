"""Lines of a stored table, so that one planner can be run anew without the hours that the others take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gnnplace.bench.options import BenchOptions
from gnnplace.bench.papers.tables import TableRow
from gnnplace.errors import GnnplaceError
from gnnplace.files import read_json

__all__ = ["EarlierTable", "command_arguments", "earlier_table"]


@dataclass(frozen=True, eq=False)
class EarlierTable:
    """What a stored result says of planners that are not run again."""

    lines: Mapping[tuple[str, str], Mapping[str, Any]]
    """By row and planner."""
    details: Mapping[str, Mapping[str, Any]]
    """By row: its `placements` and `histories` are those of a planner's first seed."""

    def complete(self, told: Mapping[str, dict[str, Any]]) -> None:
        """Adds placements and histories to the details of a table in which they are missing."""
        for key, detail in told.items():
            for kind in ("placements", "histories"):
                detail[kind] = {**self.details[key][kind], **detail[kind]}


def earlier_table(
    options: BenchOptions, rows: Sequence[TableRow], planners: Sequence[str], evaluations: int, seeds: int
) -> EarlierTable | None:
    """The lines of all `planners` that `options.rows` leaves out, from the result `options.extend`; None without both.

    A line says in `cpu` which processor it was made on, as it may be another one.

    Raises:
        GnnplaceError: only one of the two is given, there is no such planner, or the result lacks a line or was made with
            other evaluations or seeds.
    """
    if options.extend is None and not options.rows:
        return None
    if options.extend is None or not options.rows:
        raise GnnplaceError("--rows A,B says which planners are run, and --extend RESULT has the others: give both")
    for name in options.rows:
        if name not in planners:
            raise GnnplaceError(f"there is no planner {name!r} in this table; it has {', '.join(planners)}")
    document = read_json(options.extend, GnnplaceError)
    try:
        cpu, details = document["machine"]["cpu"], document["details"]
        lines = {(line["row"], line["planner"]): {"cpu": cpu, **line} for line in document["rows"]}
        made_with = document["seed"], max(line["evaluations"] for line in lines.values()), _seeds(lines.values())
    except (KeyError, TypeError, AttributeError) as problem:
        raise GnnplaceError(f"{options.extend}: is no table of the papers ({problem!r})") from None
    if made_with != (options.seed, evaluations, seeds):
        raise GnnplaceError(
            f"{options.extend}: was made with seed, evaluations and seeds {made_with}, not {(options.seed, evaluations, seeds)}; "
            "give the same ones"
        )
    for row in rows:
        for name in planners:
            if name not in options.rows and (row.key, name) not in lines:
                raise GnnplaceError(f"{options.extend}: has no line for {name} on {row.key}; add it to --rows")
    return EarlierTable(lines, details)


def command_arguments(options: BenchOptions) -> tuple[str, ...]:
    """Those of the options, and the result that is extended."""
    return options.arguments if options.extend is None else (*options.arguments, "--extend", options.extend.name)


def _seeds(lines: Iterable[Mapping[str, Any]]) -> int:
    return max(len(line["feasible"]) for line in lines)

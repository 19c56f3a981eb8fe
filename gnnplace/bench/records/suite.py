"""`gnnplace bench records`: checks all records, searches better ones, or keeps one that somebody gives."""

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from gnnplace.bench.harness import BenchOptions, BenchResult, check_known, matching, run_cases
from gnnplace.bench.records.cases import record_cases
from gnnplace.bench.records.checking import RecordCheck, check_result
from gnnplace.bench.records.keeping import is_kept, keep_found, keep_given
from gnnplace.bench.records.page import write_page
from gnnplace.bench.records.searching import LONG, RecordSearch, search_result
from gnnplace.errors import GnnplaceError
from gnnplace.planners.catalog import PLANNERS
from models_zoo.records.names import record_names
from models_zoo.records.record import OPTIMAL, Record, load_record

COLUMNS = ("record", "ops", "devices", "makespan_s", "gap", "found_by", "wrong")


def bench_records(options: BenchOptions) -> BenchResult:
    """A line per record: its seconds, its bound, and what is wrong with it.

    With `rows`, the planners of that name first search on every case for a minute, or with `-long` for ten; what is better is
    kept at once. With `extend`, the file is a placement that becomes the record named by `only` if it is better.

    Raises:
        GnnplaceError: there is no such planner or record, or the given placement is not better.
    """
    check_known(options.rows, [name + end for name in PLANNERS for end in ("", LONG)], "planner")
    cases = matching({name: name for name in record_cases()}, options.only, "record")
    if options.extend is not None:
        if options.rows:
            raise GnnplaceError(
                "bench records searches with --rows, or keeps the placement of --extend; give one of them"
            )
        record = keep_given(_named(options.only, cases), options.extend)
        options.on_progress(f"{record.name}: {options.extend} is the record now")
    searches = [
        RecordSearch.of_row(case, row, seed) for row in options.rows for case in cases for seed in options.seed_range(1)
    ]
    for search, result in run_cases(searches, search_result, options, keep_found, ".searches").items():
        if not is_kept(search):  # a start that was stopped at this moment
            keep_found(search, result)
    if searches or options.extend is not None:
        write_page()
    records = {name: load_record(name) for name in record_names() if name in cases}
    found = run_cases([RecordCheck.of(name) for name in records], check_result, options, suffix=".checks")
    rows = [_row(records[check.record], result["wrong"]) for check, result in found.items()]
    return BenchResult("records", options, rows, records_summary(rows), columns=COLUMNS)


def _named(only: Sequence[str], cases: Sequence[str]) -> str:
    """The one case that `--only` names in full, or the only one that has it in its name."""
    exact = [name for name in cases if name in only]
    chosen = exact or list(cases)
    if len(chosen) != 1:
        raise GnnplaceError(
            f"--extend is a placement of one record, and --only names {len(chosen)}; write its whole name"
        )
    return chosen[0]


def _row(record: Record, wrong: Sequence[str]) -> dict[str, Any]:
    return {
        "record": record.name,
        "ops": record.ops,
        "devices": record.num_devices,
        "makespan_s": record.makespan_s,
        "lower_bound_s": record.lower_bound_s,
        "lower_bound": record.lower_bound,
        "gap": record.gap,
        "found_by": record.found.planner,
        "seconds": record.found.seconds,
        "results": dict(record.results),
        "wrong": "; ".join(wrong),
    }


def records_summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Number of records, of wrong ones and of optimal ones, the median gap, and how many each planner holds."""
    gaps = [row["gap"] for row in rows]
    holders = Counter(row["found_by"] for row in rows)
    return {
        "records": len(rows),
        "wrong": sum(bool(row["wrong"]) for row in rows),
        "gap_below_0.1_percent": sum(gap < OPTIMAL for gap in gaps),
        "median_gap": statistics.median(gaps) if gaps else None,
        **{f"found_by_{name}": count for name, count in holders.most_common()},
    }

"""The page of `bench generalization`: the table, every run, and the cases in which `gnn` loses."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from gnnplace.report.bench_charts import budgets_chart, ratios_chart
from gnnplace.report.page import bench_html, chart_html
from gnnplace.report.tables import figure, html_table, summary_table
from gnnplace.units import format_s

_WORST = 3
_BREAK = "\N{ZERO WIDTH SPACE}"
Line = Mapping[str, Any]


def render_generalization(document: Mapping[str, Any]) -> str:
    """The page as HTML."""
    details, rows, summary = document["details"], document["rows"], document["summary"]
    cases = details["cases"]
    others = {name: entry for name, entry in summary.items() if not _is_comparison(entry)}
    return bench_html(
        "generalization.html", document, "Graphs and devices that no training has seen", "generalization.css",
        about=_about(cases),
        rows=_rows_table(rows),
        left_out="".join(f"<p>{escape(note)}.</p>" for note in details["left_out"]),
        comparisons=_comparisons(summary),
        summary=summary_table(others, ".4g"),
        ratios=chart_html(ratios_chart(_points(rows, cases)), "ratios"),
        budgets=_budgets(rows),
        worst=_worst(rows, cases),
        unseen=_unseen_table(rows, details["unseen"]),
        cases=_cases_table(rows, cases),
    )  # fmt: skip


def _about(cases: Mapping[str, Line]) -> str:
    groups = [case["groups"] for case in cases.values()]
    sets, families = {case["devices"] for case in cases.values()}, {case["family"] for case in cases.values()}
    return (
        f"{len(cases)} cases of {min(groups, default=0):,} to {max(groups, default=0):,} op groups, {len(families)} graph families and "
        f"settings, {len(sets)} device sets. A ratio is a time over the best time that any row found on the case with any "
        "seed. Means are over all cases and seeds. Every simulated makespan counts as one evaluation. Evaluations and wall times are medians."
    )


def _rows_table(rows: Iterable[Line]) -> str:
    heads = ["row", "runs", "mean ratio", "worst ratio", "at", "within 2 %", "does not fit", "evaluations", "wall time"]
    body = [
        [
            escape(line["row"]), str(line["runs"]), figure(line["mean_ratio"]), figure(line["worst_ratio"]),
            f"<small>{escape(line['worst_at'] or '–')}</small>", _share(line["within_2_percent"]),
            str(line["infeasible"]), f"{line['evaluations']:,.0f}", format_s(line["wall_s"]),
        ]
        for line in rows
    ]  # fmt: skip
    return html_table(heads, body)


def _unseen_table(rows: Iterable[Line], unseen: Mapping[str, Line]) -> str:
    """A column per kind of case: mean and worst ratio, and the number of runs without a feasible placement."""
    found = {(kind, line["row"]): line for kind, part in unseen.items() for line in part["rows"]}
    heads = ["row", *(f"{kind} ({len(part['cases'])} cases)" for kind, part in unseen.items())]
    return html_table(
        heads, ([escape(line["row"]), *(_short(found.get((kind, line["row"]))) for kind in unseen)] for line in rows)
    )


def _short(line: Line | None) -> str:
    if line is None:
        return "–"
    text = f"{figure(line['mean_ratio'])} <small>worst {figure(line['worst_ratio'])}</small>"
    return f"{text} <small>{line['infeasible']} of {line['runs']} do not fit</small>" if line["infeasible"] else text


def _comparisons(summary: Mapping[str, Any]) -> str:
    heads = ["", "mean ratio", "by seed", "worst ratio", "at", "better", "equal", "worse", "beatable", "pairs"]
    body = [
        [
            f"{escape(pair['row'])} / {escape(pair['other'])}", figure(pair["mean_ratio"]),
            ", ".join(figure(mean) for mean in pair["mean_ratio_by_seed"]), figure(pair["worst_ratio"]),
            f"<small>{escape(pair['worst_at'] or '–')}</small>", _share(pair["better"]), _share(pair["equal"]),
            _share(pair["worse"]), _share(pair["beatable"]), str(pair["pairs"]),
        ]
        for pair in filter(_is_comparison, summary.values())
    ]  # fmt: skip
    return html_table(heads, body) if body else "<p>The bench ran none of the rows to compare.</p>"


def _is_comparison(entry: object) -> bool:
    return isinstance(entry, dict) and "mean_ratio_by_seed" in entry


def _points(rows: Iterable[Line], cases: Mapping[str, Line]) -> dict[str, list[tuple[str, float]]]:
    return {
        line["row"]: [
            (f"{name}, seed {run['seed']}", run["ratio"])
            for name, case in cases.items()
            for run in case["results"].get(line["row"], ())
            if run["ratio"] is not None
        ]
        for line in rows
    }


def _budgets(rows: Iterable[Line]) -> str:
    lines: dict[str, list[tuple[int, float]]] = {}
    for line in rows:
        planner, at, count = line["row"].partition("@")
        if at and line["mean_ratio"] is not None:
            lines.setdefault(planner, []).append((int(count), line["mean_ratio"]))
    return chart_html(budgets_chart(lines), "budgets") if lines else "<p>The bench ran no such rows.</p>"


def _worst(rows: Sequence[Line], cases: Mapping[str, Line]) -> str:
    ours = [line["row"] for line in rows if line["row"].startswith("gnn")]
    body = []
    for row in ours:
        means = {name: _mean_ratio(case, row) for name, case in cases.items()}
        known = {name: mean for name, mean in means.items() if mean is not None}
        for name in sorted(known, key=known.__getitem__, reverse=True)[:_WORST]:
            best = min(cases[name]["results"], key=lambda other: _mean_ratio(cases[name], other) or float("inf"))
            body.append([escape(row), escape(name), figure(known[name]), escape(best)])
    return html_table(["row", "case", "mean ratio", "best row"], body) if body else "<p>The bench did not run it.</p>"


def _cases_table(rows: Sequence[Line], cases: Mapping[str, Line]) -> str:
    names = [line["row"] for line in rows]
    heads = ["case", "groups, ops", "best known, bound", *map(_head, names)]
    body = []
    for name, case in cases.items():
        means = [_mean_ratio(case, row) for row in names]
        best = min((mean for mean in means if mean is not None), default=None)
        best_known = "–" if case["best_known_s"] is None else format_s(case["best_known_s"])
        body.append(
            [
                f"{escape(name)}<br><small>{escape(_about_case(case))}</small>",
                f"{case['groups']:,}<br><small>{case['ops']:,}</small>",
                f"{best_known}<br><small>{format_s(case['lower_bound']['value_s'])}</small>",
                *(f"<b>{figure(mean)}</b>" if mean == best is not None else figure(mean) for mean in means),
            ]
        )
    return html_table(heads, body)


def _about_case(case: Line) -> str:
    """The properties of a case that training never has."""
    types = [f"op types {', '.join(case['unseen_types'])}"] if case["unseen_types"] else []
    return "; ".join([case["family"], *case["unlike_training"], *types])


def _head(row: str) -> str:
    """A column head that may wrap at every sign, so that many columns fit."""
    return row.replace("@", f"{_BREAK}@").replace("-", f"-{_BREAK}")


def _mean_ratio(case: Line, row: str) -> float | None:
    """The mean over seeds; None if any seed found no feasible placement or the row is absent."""
    found = [run["ratio"] for run in case["results"].get(row, ())]
    return None if not found or None in found else sum(found) / len(found)


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"

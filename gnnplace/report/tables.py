"""Tables and sentences of a report as HTML; every name is escaped."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from gnnplace.objectives import COMBINED
from gnnplace.report.answer import evaluator_of, percent, seconds, speed
from gnnplace.report.run_charts import stage_of
from gnnplace.report.theme import TRANSFER, device_colour, label
from gnnplace.run_record import MeasuredRecord, PlannerRow, RunRecord, StepRecord, memory_groups, objective_s
from gnnplace.units import format_bytes

_MOST_STEPS = 12
_NAMED = 3
"""Moves shown per step."""


def planners_table(run: RunRecord) -> str:
    """All planners, fastest first; marks the planner whose placement is the answer."""
    rows = sorted(run["planners"], key=_rank)
    slowest_s = max((objective_s(row) or 0.0 for row in rows if _rank(row)[0] == 0), default=0.0)
    step = "one step" if run["summary"]["objective"] == "latency" else "each of many steps"
    heads = ["planner", f"{step} ({evaluator_of(run)})", "gap", "evaluations", "took", ""]
    return html_table(heads, (_planner_cells(row, run, slowest_s) for row in rows))


def runs_table(run: RunRecord) -> str:
    """The placements that were executed side by side; empty without a measurement."""
    measured = run["measured"]
    if measured is None or not measured["runs"]:
        return ""
    first_s = measured["runs"][0]["median_s"]
    rows = (
        [
            escape(row["label"]),
            f"{seconds(row['median_s'])} ± {seconds(row['spread_s'])}",
            str(row["repeats"]),
            "" if number == 0 else f"{speed(row['median_s'], first_s)} the first",
        ]
        for number, row in enumerate(measured["runs"])
    )
    head = "measured side by side" if measured.get("confirmed", True) else "measured in the search"
    return (
        html_table([head, "median", "repeats", ""], rows) + _pairs(measured) + _sessions(measured) + _searched(measured)
    )


def _pairs(measured: MeasuredRecord) -> str:
    """The difference that pairs with the best plain session gave after the table's rounds; empty for records without it."""
    if "difference" not in measured:
        return ""
    low, high = measured["difference_interval"]
    # A session that is the answer has the time of the rounds.
    time = (
        "" if measured["median_s"] == measured.get("best_session_s") else " and give its time at the top of this page"
    )
    return (
        f"<p>After these rounds, the fastest placement ran in pairs with the best plain session. These decide about the answer{time}: "
        f"the placement's time differs by {100 * measured['difference']:+.1f} % (95 % interval {100 * low:+.1f} to {100 * high:+.1f} %). "
        "Rounds and pairs disagree where the machine changes its speed between them.</p>"
    )


def _sessions(measured: MeasuredRecord) -> str:
    """The plain sessions that were tried before the search, fastest first; empty for records without them."""
    tried = sorted(measured.get("sessions", {}).items(), key=lambda entry: entry[1])
    if not tried:
        return ""
    listed = ", ".join(f"{escape(device)} {seconds(taken_s)}" for device, taken_s in tried)
    return f"<p>Plain sessions of the whole model that were tried before the search: {listed}.</p>"


def _searched(measured: MeasuredRecord) -> str:
    """The number of placements that the search executed; empty for records without it."""
    if "search" not in measured:
        return ""
    search = measured["search"]
    known = f" and knew {search['recalled']:,} from earlier runs" if search["recalled"] else ""
    failed = f" {search['failed']:,} failed." if search.get("failed") else ""
    retried = f" It replaced {search['retried']:,} lost measuring processes." if search.get("retried") else ""
    return (
        f"<p>The search executed {search['executed']:,} placements{known}.{failed}{retried} "
        f"Models ran for {seconds(search['executing_s'])} of its {seconds(search['wall_s'])} ({percent(search['executing_s'] / max(search['wall_s'], 1e-9))}).</p>"
    )


def devices_table(run: RunRecord) -> str:
    """Ops of each device, and its peak memory against its capacity."""
    ops = run["ops"]
    rows = []
    first_of = {device: devices[0] for devices in memory_groups(run).values() for device in devices}
    for index, device in enumerate(run["devices"]):
        num_ops = sum(place == index for place in ops["device"])
        peak, capacity = run["peak_memory_bytes"].get(device["name"], 0), device["memory_bytes"]
        name = f"{swatch(device_colour(index))}{escape(device['name'])}"
        if device["kind"] != device["name"]:
            name += f" <small>{escape(device['kind'])}</small>"
        first = first_of[index]
        shared = f"that of {escape(run['devices'][first]['name'])}"
        memory = _memory_bar(peak, capacity, device_colour(index)) if first == index else shared
        rows.append([name, f"{num_ops:,}", memory])
    return html_table(["device", "ops", "peak memory"], rows)


def graph_legend(run: RunRecord) -> str:
    """The legend of the graph's colours."""
    moves = f'<span class="stroke" style="background:{TRANSFER}"></span>tensor moves to another device'
    return device_legend({index: run["devices"][index]["name"] for index in sorted(set(run["ops"]["device"]))}, moves)


def device_legend(devices: Mapping[int, str], *others: str) -> str:
    """The colour and name of each device, then other entries as HTML."""
    parts = [f"{swatch(device_colour(index))}{escape(name)}" for index, name in devices.items()]
    return f'<p class="legend">{"".join(f"<span>{part}</span>" for part in [*parts, *others])}</p>'


def warnings_list(run: RunRecord) -> str:
    """The warnings of a run; empty without any."""
    parts = [f"<li>{escape(text)}</li>" for text in run["warnings"]]
    return f'<section class="warnings"><h2>Warnings</h2><ul>{"".join(parts)}</ul></section>' if parts else ""


def facts_table(run: RunRecord) -> str:
    """The command, sizes, seed and versions of a run."""
    summary = run["summary"]
    model = f"{escape(summary['model'])}: {summary['ops']:,} ops in {summary['groups']:,} groups"
    search = (
        f"{escape(summary['planner'])}, {summary['evaluations']:,} evaluations, {seconds(summary['wall_s'])}, "
        f"seed {summary['seed']}, for {escape(summary['objective'])}"
    )
    shapes = run.get("shapes") or []
    sizes = {} if len(shapes) < 2 else {"sizes": _sizes(run)}
    return _facts(run["command"], run["versions"], model=model, **sizes, search=search)


def _sizes(run: RunRecord) -> str:
    """The simulated step with each of several sizes, and which of them the rest of the page shows."""
    times = [
        f"{escape(', '.join(f'{name}={size}' for name, size in shape['dims'].items()))}: {seconds(shape['makespan_s'])}"
        for shape in run["shapes"]
    ]
    return f"{'; '.join(times)} (simulated). The {COMBINED[run.get('dims_objective', 'worst')]} of them counts; schedule and memory are of the first."


def bench_facts(document: Mapping[str, Any]) -> str:
    """The command, machine and versions of a bench."""
    machine = document["machine"]
    text = f"{escape(machine['cpu'])}, {machine['cores']} cores, Python {escape(machine['python'])}"
    return _facts(document["command"], document["versions"], machine=text)


def _facts(command: str, versions: Mapping[str, str], **others: str) -> str:
    named = ", ".join(f"{escape(name)} {escape(version)}" for name, version in versions.items())
    facts = {"command": f"<code>{escape(command)}</code>", **others, "versions": named}
    return '<dl class="facts">' + "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in facts.items()) + "</dl>"


def summary_table(summary: Mapping[str, Any], digits: str = ".3f") -> str:
    """The summary of a bench, one figure per row; a mapping gives several figures in one cell."""
    rows = []
    for key, value in summary.items():
        parts = value.items() if isinstance(value, Mapping) else ()
        several = "<br>".join(f"{escape(name.replace('_', ' '))}: {figure(part, digits)}" for name, part in parts)
        rows.append([escape(key.replace("_", " ")), several or figure(value, digits)])
    return html_table(["", ""], rows)


def figure(value: object, digits: str = ".3f") -> str:
    """Formats a number or a list of numbers; escapes text; a dash for None."""
    if isinstance(value, list):
        return ", ".join(figure(part, digits) for part in value)
    return "–" if value is None else f"{value:{digits}}" if isinstance(value, float) else escape(str(value))


def _rank(row: PlannerRow) -> tuple[int, float]:
    """Sort key: feasible rows by time, then infeasible ones, then failed ones."""
    took = objective_s(row)
    if row["error"] or took is None or not math.isfinite(took):
        return 2, 0.0
    return int(not row["feasible"]), took


def _planner_cells(row: PlannerRow, run: RunRecord, slowest_s: float) -> list[str]:
    kept = row["planner"] == run.get("kept", run["summary"]["planner"])
    name = f"<b>{escape(row['planner'])}</b> <small>kept</small>" if kept else escape(row["planner"])
    # Baselines of a measured run are planned in the simulator, which costs no executed evaluation.
    counted = row["evaluations"] or row["wall_s"]
    effort = (f"{row['evaluations']:,}", seconds(row["wall_s"])) if counted else ("–", "–")
    if row["error"]:
        return [name, "–", "–", *effort, escape(row["error"])]
    took = objective_s(row)
    works = row["feasible"] and took is not None
    bar = _bar((took or 0.0) / slowest_s, device_colour(0)) if works and slowest_s else ""
    return [name, seconds(took), percent(row["gap"]), *effort, bar if works else "does not fit in memory"]


def _memory_bar(peak: int, capacity: int | None, colour: str) -> str:
    if capacity is None:
        return f"{format_bytes(peak)} <small>no limit</small>"
    part = peak / capacity if capacity else math.inf if peak else 0.0
    over = ' <b class="bad">does not fit</b>' if part > 1 else ""
    share = percent(part) if math.isfinite(part) else "all"
    return f"{_bar(part, colour)}{format_bytes(peak)} of {format_bytes(capacity)} <small>{share}</small>{over}"


def swatch(colour: str) -> str:
    """A coloured square."""
    return f'<span class="swatch" style="background:{colour}"></span>'


def _bar(part: float, colour: str) -> str:
    return f'<span class="bar"><span style="width:{100 * min(part, 1.0):.1f}%;background:{colour}"></span></span>'


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """An HTML table from heads (text) and cells (finished HTML)."""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def critical_line(run: RunRecord) -> str:
    """A sentence on the ops and transfers of the critical path; empty for records without one."""
    path = run.get("critical_path")
    if not path:
        return ""
    ops, transfers = run["ops"], run["transfers"]
    computing = [ops["end_s"][index] - ops["start_s"][index] for kind, index in path if kind == "op"]
    sending = [transfers[index]["end_s"] - transfers[index]["start_s"] for kind, index in path if kind == "transfer"]
    total_s = sum(computing) + sum(sending)
    share = f" ({percent(sum(sending) / total_s)} of the step)" if sending and total_s > 0 else ""
    return (
        f"<p>Critical path: {len(computing):,} ops for {seconds(sum(computing))} and "
        f"{len(sending):,} transfers for {seconds(sum(sending))}{share}.</p>"
    )


def stages_table(run: RunRecord) -> str:
    """The best time after each stage of the search, and the gain of the stage; empty without stages."""
    if not run["stages"]:
        return ""
    rows, before_s = [], None
    found = Counter(stage_of(run["stages"], best) for _, _, best in run["history"] if best is not None)
    names = [name for name in dict.fromkeys(name for name, _ in run["stages"]) if found[name]]
    for name, after_s in run["stages"]:
        gain = "–"
        if before_s is not None and after_s is not None and before_s > 0:
            share = percent(1 - after_s / before_s)
            gain = f"{seconds(before_s - after_s)} ({share})" if after_s < before_s else "nothing"
        mark = swatch(device_colour(names.index(name))) if name in names else ""
        rows.append([f"{mark}{escape(name)}", seconds(after_s), gain, f"{found[name]:,}"])
        before_s = after_s if after_s is not None else before_s
    return html_table(["stage", "best after it", "gain", "improvements"], rows)


def executed_line(run: RunRecord) -> str:
    """How many changes were executed against the placement before them; empty without such steps."""
    steps = run.get("executed_steps", [])
    if not steps:
        return ""
    kept, failed = sum(step["kept"] for step in steps), sum(step["difference"] is None for step in steps)
    text = (
        f"Changes executed in turns with the placement before them: {len(steps):,}. Kept, as the interval of the difference shows "
        f"that they are faster: {kept:,}. The others were taken back."
    )
    return f"<p>{text}{f' {failed:,} failed to run.' if failed else ''}</p>"


def steps_table(run: RunRecord) -> str:
    """The steps of the policy that gained most: the moved groups, and the probability that the policy gave them."""
    steps = run.get("steps")
    if steps is None:
        return "<p>This record has no steps.</p>"
    if not steps:
        return "<p>No policy chose steps of this placement: a construction or a search without a policy found it.</p>"
    most = sorted(steps, key=_gain, reverse=True)[:_MOST_STEPS]
    total_s = sum(map(_gain, steps))
    drawn = [step for step in steps if step["probability"] is not None]
    favoured = sum((step["probability"] or 0.0) > step["chance"] for step in drawn)
    text = (
        f"<p>Steps that improved the best placement: {len(steps):,}, by {seconds(total_s)} in total (simulated); the most valuable "
        f"come first. Steps that began with a move of one op group drawn from the policy's odds: {len(drawn):,}, of which the "
        f"policy gave {favoured:,} a higher probability than a uniform draw.</p>"
    )
    heads = ["evaluation", "gain", "step", "op groups", "first moves", "policy's probability"]
    return text + html_table(heads, [_cells(run, step) for step in most])


def _gain(step: StepRecord) -> float:
    before_s, after_s = step["before_s"], step["after_s"]
    return 0.0 if before_s is None or after_s is None else before_s - after_s


def _cells(run: RunRecord, step: StepRecord) -> list[str]:
    moves = [
        f"{label(name, most=49)} <small>{escape(run['devices'][source]['name'])} → {escape(run['devices'][target]['name'])}</small>"
        for name, source, target in step["moves"][:_NAMED]
    ]
    odds, probability = "not used", step["probability"]
    if probability is not None:
        ratio = probability / step["chance"]
        odds = f"{100 * probability:.2g} % <small>{ratio:{'.1f' if ratio >= 0.1 else '.2g'}}x uniform</small>"
    gain = "first that fits" if step["before_s"] is None else seconds(_gain(step))
    return [f"{step['evaluations']:,}", gain, escape(step["kind"]), f"{step['moved']:,}", "<br>".join(moves), odds]

"""The schedule of a run in the Trace Event Format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

Devices and channels are threads of two processes, ops and transfers complete events, tensors in flight flow events, memories counters. Times are
microseconds of the simulated step. Source of the format: Google's "Trace Event Format" and Perfetto's notes on it.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gnnplace.files import write_text
from gnnplace.run_record import Link, RunRecord

_DEVICES, _CHANNELS = 1, 2
"""Process numbers."""
Event = dict[str, Any]


def write_trace(run: RunRecord, path: Path) -> Path:
    """Writes the trace of a run; returns its path."""
    write_text(path, json.dumps(trace_events(run)) + "\n")
    return path


def trace_events(run: RunRecord) -> dict[str, Any]:
    """The trace of a run as a JSON object."""
    slices = _slices(run)
    return {
        "displayTimeUnit": "ms",
        "otherData": {
            "model": run["summary"]["model"], "command": run["command"], "times": "simulated",
            "makespan_s": run["summary"]["makespan_s"],
        },
        "traceEvents": [*_names(run), *slices.values(), *_flows(run, slices), *_counters(run)],
    }  # fmt: skip


def _channels(run: RunRecord) -> list[str]:
    """The channel of each transfer; a link without a channel counts as one."""
    name = [device["name"] for device in run["devices"]]
    return [row["channel"] or f"{name[row['source']]} -> {name[row['target']]}" for row in run["transfers"]]


def _names(run: RunRecord) -> Iterator[Event]:
    devices = [device["name"] for device in run["devices"]]
    rows = ((_DEVICES, "devices", devices), (_CHANNELS, "channels", sorted(set(_channels(run)))))
    for process, name, threads in rows:
        yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": process}}
        for thread, thread_name in enumerate(threads):
            place = {"ph": "M", "pid": process, "tid": thread}
            yield {**place, "name": "thread_name", "args": {"name": thread_name}}
            yield {**place, "name": "thread_sort_index", "args": {"sort_index": thread}}


def _slices(run: RunRecord) -> dict[Link, Event]:
    """One complete event per op and transfer."""
    ops, devices, channels = run["ops"], run["devices"], _channels(run)
    thread_of = {name: thread for thread, name in enumerate(sorted(set(channels)))}
    found: dict[Link, Event] = {}
    for op, name in enumerate(ops["name"]):
        args: Event = {"type": ops["type"][op], "group": ops["group"][op], "weights_bytes": ops["memory_bytes"][op]}
        args |= {key: ops[key][op] for key in ("shapes", "held") if key in ops and ops[key][op]}
        place = {"name": name, "cat": ops["type"][op], "pid": _DEVICES, "tid": ops["device"][op]}
        found["op", op] = _slice(place, ops["start_s"][op], ops["end_s"][op], args)
    for index, row in enumerate(run["transfers"]):
        args = {"bytes": row["bytes"], "from": devices[row["source"]]["name"], "to": devices[row["target"]]["name"]}
        place = {"name": row["tensor"], "cat": "transfer", "pid": _CHANNELS, "tid": thread_of[channels[index]]}
        found["transfer", index] = _slice(place, row["start_s"], row["end_s"], args)
    for link in run.get("critical_path", []):
        found[link]["args"]["on_critical_path"] = True
    return found


def _slice(place: Event, start_s: float, end_s: float, args: Event) -> Event:
    return {"ph": "X", **place, "ts": 1e6 * start_s, "dur": 1e6 * (end_s - start_s), "args": args}


def _flows(run: RunRecord, slices: dict[Link, Event]) -> Iterator[Event]:
    """Flow events from each producer to its transfers, from hop to hop, and on to the consumers of the tensor."""
    for number, (source, target) in enumerate(_arrows(run)):
        for phase, link in (({"ph": "s"}, source), ({"ph": "f", "bp": "e"}, target)):
            event = slices[link]
            # The middle of a slice identifies it; its ends may touch other slices.
            middle = event["ts"] + event["dur"] / 2
            named = {"id": number, "name": "tensor", "cat": "tensor"}
            yield {**phase, **named, "ts": middle, "pid": event["pid"], "tid": event["tid"]}


def _arrows(run: RunRecord) -> Iterator[tuple[Link, Link]]:
    ops, transfers = run["ops"], run["transfers"]
    op_of = {name: op for op, name in enumerate(ops["name"])}
    readers: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for producer, consumer, size in run["edges"]:
        readers[producer, ops["device"][consumer], size].append(consumer)
    arrived: dict[tuple[int, int, int], int] = {}
    for index in sorted(range(len(transfers)), key=lambda index: transfers[index]["start_s"]):
        row = transfers[index]
        if row["tensor"] not in op_of:
            continue
        made_by = op_of[row["tensor"]]
        before = arrived.get((made_by, row["bytes"], row["source"]))
        if ops["device"][made_by] == row["source"]:
            yield ("op", made_by), ("transfer", index)
        elif before is not None:
            yield ("transfer", before), ("transfer", index)
        arrived[made_by, row["bytes"], row["target"]] = index
        for reader in readers[made_by, row["target"], row["bytes"]]:
            if ops["start_s"][reader] >= row["end_s"]:
                yield ("transfer", index), ("op", reader)


def _counters(run: RunRecord) -> Iterator[Event]:
    for device, course in zip(run["devices"], run.get("memory_over_time", []), strict=False):
        event = {"ph": "C", "name": f"memory of {device['name']}", "pid": _DEVICES}
        for time_s, level in course:
            yield {**event, "ts": 1e6 * time_s, "args": {"bytes": level}}

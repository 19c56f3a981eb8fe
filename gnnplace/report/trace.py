"""The schedule of a run in the Trace Event Format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

Devices and channels are threads of two processes, ops and transfers complete events, tensors in flight flow events, memories counters. Times are
microseconds of the simulated step. Source of the format: Google's "Trace Event Format" and Perfetto's notes on it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gnnplace.files import write_text
from gnnplace.run_record import Link, RunRecord

__all__ = ["trace_events", "write_trace"]

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
    """Names of the channels that carried a tensor; a link without a channel counts as one."""
    return sorted({_channel(run, index) for index in range(len(run["transfers"]))})


def _channel(run: RunRecord, transfer: int) -> str:
    row, devices = run["transfers"][transfer], run["devices"]
    way = f"{devices[row['source']]['name']} -> {devices[row['target']]['name']}"
    return way if row["channel"] is None else row["channel"]


def _names(run: RunRecord) -> Iterator[Event]:
    threads = {_DEVICES: [device["name"] for device in run["devices"]], _CHANNELS: _channels(run)}
    for process, name in ((_DEVICES, "devices"), (_CHANNELS, "channels")):
        yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": process}}
        for thread, thread_name in enumerate(threads[process]):
            place = {"ph": "M", "pid": process, "tid": thread}
            yield {**place, "name": "thread_name", "args": {"name": thread_name}}
            yield {**place, "name": "thread_sort_index", "args": {"sort_index": thread}}


def _slices(run: RunRecord) -> dict[Link, Event]:
    """One complete event per op and transfer."""
    ops, critical = run["ops"], set(run.get("critical_path", []))
    thread_of = {name: thread for thread, name in enumerate(_channels(run))}
    found: dict[Link, Event] = {}
    for op, name in enumerate(ops["name"]):
        args: dict[str, Any] = {
            "type": ops["type"][op],
            "group": ops["group"][op],
            "weights_bytes": ops["memory_bytes"][op],
        }
        args |= {key: ops[key][op] for key in ("shapes", "held") if key in ops and ops[key][op]}
        found["op", op] = _slice(
            name, ops["type"][op], (_DEVICES, ops["device"][op]), (ops["start_s"][op], ops["end_s"][op]), args
        )
    for index, row in enumerate(run["transfers"]):
        place = (_CHANNELS, thread_of[_channel(run, index)])
        ends = {"from": run["devices"][row["source"]]["name"], "to": run["devices"][row["target"]]["name"]}
        found["transfer", index] = _slice(
            row["tensor"], "transfer", place, (row["start_s"], row["end_s"]), {"bytes": row["bytes"], **ends}
        )
    for link, event in found.items():
        if link in critical:
            event["args"]["on_critical_path"] = True
    return found


def _slice(
    name: str, category: str, place: tuple[int, int], times_s: tuple[float, float], args: dict[str, Any]
) -> Event:
    start_s, end_s = times_s
    return {
        "ph": "X", "name": name, "cat": category, "ts": 1e6 * start_s, "dur": 1e6 * (end_s - start_s), "pid": place[0],
        "tid": place[1], "args": args,
    }  # fmt: skip


def _flows(run: RunRecord, slices: dict[Link, Event]) -> Iterator[Event]:
    """Flow events from each producer to its transfers, from hop to hop, and on to the consumers of the tensor."""
    for number, (source, target) in enumerate(_arrows(run)):
        for phase, event in (("s", slices[source]), ("f", slices[target])):
            # The middle of a slice identifies it; its ends may touch other slices.
            middle = event["ts"] + event["dur"] / 2
            flow = {"ph": phase, "id": number, "name": "tensor", "cat": "tensor", "ts": middle, "pid": event["pid"], "tid": event["tid"]}  # fmt: skip
            yield flow if phase == "s" else {**flow, "bp": "e"}


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
        for time_s, level in course:
            yield {
                "ph": "C", "name": f"memory of {device['name']}", "pid": _DEVICES, "ts": 1e6 * time_s, "args": {"bytes": level},
            }  # fmt: skip

"""A trace holds every op, transfer and memory of the run, by the rules of the Trace Event Format that Perfetto reads."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from gnnplace.api import place
from gnnplace.api.options import PlaceOptions
from gnnplace.report.trace import trace_events, write_trace
from gnnplace.run_record import RunRecord


def of_phase(trace: dict[str, Any], phase: str) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == phase]


def slice_at(trace: dict[str, Any], flow: dict[str, Any]) -> str:
    """The name of the slice that encloses a flow event on its thread."""
    (found,) = [
        event["name"]
        for event in of_phase(trace, "X")
        if (event["pid"], event["tid"]) == (flow["pid"], flow["tid"])
        and event["ts"] <= flow["ts"] <= event["ts"] + event["dur"]
    ]
    return found


def test_ops_and_transfers_are_complete_events_in_microseconds(run: RunRecord) -> None:
    slices = of_phase(trace_events(run), "X")
    assert [(event["name"], event["pid"], event["tid"], event["ts"], event["dur"]) for event in slices] == [
        ("conv", 1, 0, 0.0, 2000.0),
        ("relu", 1, 0, 2000.0, pytest.approx(1000.0)),
        ("add", 1, 1, 3000.0, pytest.approx(3000.0)),
        ("conv", 2, 0, 2000.0, pytest.approx(1000.0)),
    ]
    assert slices[0]["args"]["held"] == "Only gpu:0 can run it."
    assert [event["args"].get("on_critical_path", False) for event in slices] == [True, False, True, True]


def test_a_tensor_flows_from_its_producer_over_the_channel_to_its_reader(run: RunRecord) -> None:
    trace = trace_events(run)
    starts, ends = of_phase(trace, "s"), of_phase(trace, "f")
    assert [(slice_at(trace, one), slice_at(trace, other)) for one, other in zip(starts, ends, strict=True)] == [
        ("conv", "conv"),
        ("conv", "add"),
    ]
    assert [event["id"] for event in starts] == [event["id"] for event in ends] == [0, 1]
    assert all(event["bp"] == "e" for event in ends)


def test_memories_are_counters_and_rows_have_names(run: RunRecord) -> None:
    trace = trace_events(run)
    counters = [(event["name"], event["ts"], event["args"]["bytes"]) for event in of_phase(trace, "C")]
    assert counters[:2] == [("memory of gpu:0", 0.0, 2048), ("memory of gpu:0", 3000.0, 1024)]
    names = [event["args"]["name"] for event in of_phase(trace, "M") if event["name"] == "thread_name"]
    assert names == ["gpu:0", "cpu:0", "pcie"]


def test_a_real_plan_keeps_the_rules_of_the_format(tmp_path: Path) -> None:
    run = place("zoo:inception_v3", "k40x2", PlaceOptions(planner="heft")).record()
    trace = json.loads(write_trace(run, tmp_path / "trace.json").read_text())
    assert trace["displayTimeUnit"] in {"ms", "ns"}
    required = {
        "X": {"name", "cat", "ts", "dur", "pid", "tid"},
        "M": {"name", "pid", "args"},
        "C": {"name", "ts", "pid", "args"},
    }
    required |= {"s": {"id", "name", "cat", "ts", "pid", "tid"}, "f": {"id", "name", "cat", "ts", "pid", "tid", "bp"}}
    for event in trace["traceEvents"]:
        assert required[event["ph"]] <= event.keys()
        assert event.get("ts", 0) >= 0
        assert event.get("dur", 0) >= 0
    slices = of_phase(trace, "X")
    assert len(slices) == run["summary"]["ops"] + len(run["transfers"])
    assert max(event["ts"] + event["dur"] for event in slices) == pytest.approx(1e6 * run["summary"]["makespan_s"])
    by_thread: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in slices:
        by_thread.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for spans in by_thread.values():  # slices of one thread nest or do not meet
        spans.sort()
        assert all(one[1] <= other[0] + 1e-6 for one, other in itertools.pairwise(spans))
    pairs: dict[int, list[str]] = {}
    for event in trace["traceEvents"]:
        if event["ph"] in "sf":
            pairs.setdefault(event["id"], []).append(event["ph"])
    assert pairs
    assert all(phases == ["s", "f"] for phases in pairs.values())
    arrived = [flow["tid"] for flow in of_phase(trace, "f") if flow["pid"] == 2]
    assert len(arrived) == len(run["transfers"])

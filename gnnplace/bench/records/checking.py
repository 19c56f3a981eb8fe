"""Every record is simulated again, and its schedule goes through the check that shares no code with the simulator."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnplace.api.recorded import recorded_setup
from gnnplace.errors import InvalidPlacement
from gnnplace.placement import check_legal
from gnnplace.schedule import check_schedule
from gnnplace.units import format_s
from models_zoo.records.names import FOLDER
from models_zoo.records.record import EQUAL, Record, load_record


@dataclass(frozen=True)
class RecordCheck:
    """One record, as its file is."""

    record: str
    sha256: str
    """Hash of the file, so that a changed record is checked again."""

    @classmethod
    def of(cls, record: str, folder: Path = FOLDER) -> "RecordCheck":
        """The check of the record with this name."""
        content = (folder / "cases" / f"{record}.json").read_bytes()
        return cls(record, hashlib.sha256(content).hexdigest())


def check_result(check: RecordCheck) -> dict[str, Any]:
    """What is wrong with the record, a line each; empty if it is right."""
    return {"wrong": faults(load_record(check.record))}


def faults(record: Record) -> list[str]:
    """What is wrong with a record: it cannot run, takes other seconds, is below its bound, or breaks the execution model."""
    setup = recorded_setup(record)
    graph, topology = setup.workload.graph, setup.topology
    try:
        check_legal(graph, topology, record.placement)
    except InvalidPlacement as error:
        return [str(error)]
    evaluation = setup.simulator.evaluate(record.placement)
    wrong = [] if evaluation.feasible else ["does not fit into memory"]
    if abs(evaluation.makespan_s - record.makespan_s) > EQUAL * record.makespan_s:
        wrong.append(f"takes {format_s(evaluation.makespan_s)}, the record says {format_s(record.makespan_s)}")
    if record.makespan_s < record.lower_bound_s * (1.0 - EQUAL):
        wrong.append(f"takes less than the lower bound of {format_s(record.lower_bound_s)}")
    schedule = setup.simulator.schedule(record.placement)
    return [*wrong, *check_schedule(graph, topology, setup.op_time_s, schedule)]

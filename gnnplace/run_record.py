"""The record of one run, `run.json`, which is the only source of a report.

Missing seconds (infeasible, failed, not computed) are null or infinite. Devices are indices into `devices`, unless the field's
description states otherwise.
"""

import math
from pathlib import Path
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from gnnplace.errors import GnnplaceError
from gnnplace.files import read_json
from gnnplace.objectives import DimsObjective

Link = tuple[Literal["op", "transfer"], int]
"""A link of the critical path: an index into `ops` or `transfers`."""


class MeasuredSummary(TypedDict):
    """Measured seconds of the chosen placement, and of plain sessions of the whole model; null where none ran."""

    median_s: float
    spread_s: float
    """Half the width of the median's confidence interval."""
    repeats: int
    single_session_s: float | None
    """Seconds of a plain session on the best single device of the set."""
    best_session_s: NotRequired[float | None]
    """Seconds of the best plain session that the set allows; absent from older records."""
    best_session: NotRequired[str | None]
    """Device of that session with its options, such as `cpu:0-1[spinning=1]`."""


class MeasuredRun(TypedDict):
    """One candidate of the final side-by-side measurement."""

    label: str
    median_s: float
    spread_s: float
    repeats: int


class MeasuredSearch(TypedDict):
    """Executions during the search."""

    executed: int
    """Number of executed placements."""
    recalled: int
    """Number of placements known from earlier searches on this machine."""
    executing_s: float
    """Seconds spent executing models."""
    wall_s: float
    failed: NotRequired[int]
    """Number of placements that failed, or exceeded the limits of time or memory."""
    retried: NotRequired[int]
    """Number of measurements repeated because the measuring process was lost (killed, crashed, out of memory)."""


class MeasuredRecord(MeasuredSummary):
    """All measured seconds of a run."""

    runs: list[MeasuredRun]
    """Candidates measured side by side at the end; of an unconfirmed record, those of the search."""
    difference: NotRequired[float]
    """Seconds of the fastest placement over those of the best plain session, minus 1, from paired runs."""
    difference_interval: NotRequired[tuple[float, float]]
    """The 95 % interval of `difference`."""
    sessions: NotRequired[dict[str, float]]
    """Seconds of every plain session that was tried before the search, by its device with its options."""
    confirmed: NotRequired[bool]
    """False: Ctrl-C came before the side-by-side measurement, and all figures are those of the search."""
    search: NotRequired[MeasuredSearch]


class Summary(TypedDict):
    """The result of one `place`."""

    model: str
    ops: int
    groups: int
    planner: str
    objective: Literal["latency", "throughput"]
    makespan_s: float | None
    measured: MeasuredSummary | None
    feasible: bool
    lower_bound_s: float | None
    throughput_s: NotRequired[float | None]
    """Simulated seconds of each pipelined step; present only where the objective is the throughput."""
    gap: float | None
    """Fraction by which the objective exceeds the lower bound."""
    compared: dict[str, float | None]
    evaluations: int
    wall_s: float
    seed: int
    out: str | None


class DeviceRecord(TypedDict):
    """One device of the set."""

    name: str
    kind: str
    memory_bytes: int | None
    """None: unlimited."""
    resources: NotRequired[list[str]]
    """What the device occupies while it computes; absent: one of its own."""
    memory_pool: NotRequired[str | None]
    """Devices of one pool share their memory; absent or None: a memory of its own."""


class OpsRecord(TypedDict):
    """All ops as columns; the schedule is always the simulator's."""

    name: list[str]
    type: list[str]
    device: list[int]
    group: list[int | str | None]
    start_s: list[float]
    end_s: list[float]
    memory_bytes: list[int]
    shapes: NotRequired[list[str]]
    """Shapes of inputs and outputs; empty if unknown."""
    cost_s: NotRequired[list[list[float | None]]]
    """Seconds of each op on each device; null if it cannot run there."""
    held: NotRequired[list[str]]
    """Reason why the op cannot move alone; empty if it can."""


class TransferRecord(TypedDict):
    """One hop of one tensor's transfer."""

    tensor: str
    """Name of the producer op."""
    source: int
    target: int
    start_s: float
    end_s: float
    bytes: int
    channel: str | None


class StepRecord(TypedDict):
    """A change drawn from the policy that improved the best placement."""

    evaluations: int
    """Number of evaluations up to the step."""
    kind: str
    before_s: float | None
    """Best seconds before the step."""
    after_s: float | None
    moved: int
    """Number of moved op groups."""
    moves: list[tuple[str, int, int]]
    """(op of the group, source device, target device) of the first moved groups."""
    probability: float | None
    """Probability that the policy gave to the drawn move; None if the policy did not draw it."""
    chance: float
    """Probability of the move if all moves were equally likely."""


class PlannerRow(TypedDict):
    """The result of one planner on this problem."""

    planner: str
    makespan_s: float | None
    throughput_s: NotRequired[float | None]
    """Simulated seconds of each pipelined step; present only where the objective is the throughput."""
    gap: float | None
    """Fraction by which the objective exceeds the lower bound."""
    evaluations: int
    wall_s: float
    feasible: bool
    error: str | None
    host: NotRequired[str]
    """Host of the cluster that ran and timed the planner."""


def objective_s(row: PlannerRow | Summary) -> float | None:
    """Seconds of the objective; None where there is no answer."""
    return row.get("throughput_s", row["makespan_s"])


def is_below_bound(gap: float) -> bool:
    """Whether an answer is less than its bound by more than rounding; a gap that prints as 0.0 % is none."""
    return gap < -0.0005


class LowerBoundRecord(TypedDict):
    """A lower bound of the objective of all placements."""

    value_s: float
    name: str


class ShapeRecord(TypedDict):
    """Sizes of a model's symbolic dimensions, and simulated seconds of one step with them."""

    dims: dict[str, int]
    makespan_s: float | None


class ExecutedStepRecord(TypedDict):
    """A change that was executed in turns with the placement before it."""

    evaluations: int
    """Number of evaluations up to the step."""
    kind: str
    """Source of the change."""
    moved: int
    """Number of moved op groups."""
    moves: list[tuple[str, int, int]]
    """(op of the group, source device, target device) of the first moved groups."""
    difference: float | None
    """Measured seconds after over before, minus 1; None where the change failed to run."""
    difference_interval: tuple[float, float] | None
    pairs: int
    """Runs of each of the two."""
    kept: bool


class RunRecord(TypedDict):
    """The content of `run.json`.

    `measured` is null unless rewards were measured. The seconds of `summary`, `planners`, `history` and
    `stages` are then measured, otherwise simulated; where the throughput is the objective, `history` and `stages` have seconds per
    pipelined step.
    """

    format: Literal["gnnplace.run/1"]
    summary: Summary
    devices: list[DeviceRecord]
    ops: OpsRecord
    edges: list[tuple[int, int, int]]
    """(producer op, consumer op, bytes) of each edge."""
    transfers: list[TransferRecord]
    critical_path: NotRequired[list[Link]]
    """The ops and transfers that determine the makespan, in order."""
    memory_over_time: NotRequired[list[list[tuple[float, int]]]]
    """Per device, (seconds, bytes from then on); long curves keep the peak of each of 2,000 intervals."""
    peak_memory_bytes: dict[str, int]
    """Peak memory by device name."""
    planners: list[PlannerRow]
    kept: NotRequired[str]
    """Planner of the chosen placement; absent if it is that of the summary."""
    history: list[tuple[int, float, float | None]]
    """(evaluations, elapsed seconds, best seconds) at every improvement."""
    stages: list[tuple[str, float | None]]
    """(stage, best seconds after it) of each stage."""
    steps: NotRequired[list[StepRecord]]
    """Steps of planners with a policy, in order; always in simulated seconds."""
    executed_steps: NotRequired[list[ExecutedStepRecord]]
    """Steps of the decision process on the devices, in order; absent if rewards were not measured as differences."""
    lower_bound: LowerBoundRecord | None
    measured: MeasuredRecord | None
    shapes: NotRequired[list[ShapeRecord]]
    """Input shapes that the placement was made for; the schedule is that of the first."""
    dims_objective: NotRequired[DimsObjective]
    """Combination of the seconds at these shapes that was minimised."""
    warnings: list[str]
    command: str
    versions: dict[str, str]


def finite(seconds: float) -> float | None:
    """The seconds; None if they are infinite, which JSON cannot express."""
    return float(seconds) if math.isfinite(seconds) else None


def read_run(path: Path) -> RunRecord:
    """The record in a `run.json` file.

    Raises:
        GnnplaceError: the file is missing or is not a run record; the message names the first wrong entry.
    """
    from pydantic import TypeAdapter, ValidationError

    content, advice = read_json(path, GnnplaceError), "make a new one with gnnplace place"
    try:
        run = TypeAdapter(RunRecord).validate_python(content)
    except ValidationError as problem:
        first = problem.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole file"
        raise GnnplaceError(f"{path}: is no run record ({place}: {first['msg']}); {advice}") from None
    num_ops = len(run["ops"]["name"])
    if any(len(column) != num_ops for column in run["ops"].values()):  # type: ignore[arg-type]  # values() of a TypedDict are objects
        raise GnnplaceError(f"{path}: the columns of ops differ in length; {advice}")
    if not _is_consistent(run):
        raise GnnplaceError(f"{path}: names an op or device that it does not list, or a transfer; {advice}")
    return run


def _is_consistent(run: RunRecord) -> bool:
    """True if every index refers to a listed op, device or transfer."""
    path = run.get("critical_path", [])
    indices = (
        ([op for edge in run["edges"] for op in edge[:2]], len(run["ops"]["name"])),
        ([index for kind, index in path if kind == "op"], len(run["ops"]["name"])),
        ([index for kind, index in path if kind == "transfer"], len(run["transfers"])),
        (run["ops"]["device"], len(run["devices"])),
        ([end for row in run["transfers"] for end in (row["source"], row["target"])], len(run["devices"])),
        (
            [
                end
                for step in (*run.get("steps", []), *run.get("executed_steps", []))
                for move in step["moves"]
                for end in move[1:]
            ],
            len(run["devices"]),
        ),
    )
    per_device = [len(row) for row in run["ops"].get("cost_s", [])]
    if "memory_over_time" in run:
        per_device.append(len(run["memory_over_time"]))
    is_listed = all(0 <= index < count for values, count in indices for index in values)
    return is_listed and all(count == len(run["devices"]) for count in per_device)


def memory_groups(run: RunRecord) -> dict[int, list[int]]:
    """The devices of each memory by its first device, whose entries in the record are those of the memory."""
    groups: dict[object, list[int]] = {}
    for index, device in enumerate(run["devices"]):
        pool = device.get("memory_pool")
        groups.setdefault(index if pool is None else pool, []).append(index)
    return {devices[0]: devices for devices in groups.values()}

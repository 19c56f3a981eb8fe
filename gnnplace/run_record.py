"""What one run leaves behind in `run.json`: the only thing that a report is made from.

Seconds that do not exist (infeasible, failed, not computed) are null or infinite; devices are indices into `devices`
unless a key says otherwise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from gnnplace.errors import GnnplaceError
from gnnplace.evaluation import DimsObjective
from gnnplace.files import read_json

__all__ = [
    "FORMAT",
    "DeviceRecord",
    "Link",
    "LowerBoundRecord",
    "MeasuredRecord",
    "MeasuredRun",
    "MeasuredSearch",
    "MeasuredSummary",
    "OpsRecord",
    "PlannerRow",
    "RunRecord",
    "StepRecord",
    "Summary",
    "TransferRecord",
    "read_run",
]


FORMAT = "gnnplace.run/1"
Link = tuple[Literal["op", "transfer"], int]
"""Of a chain: an index into `ops` or `transfers`."""


class MeasuredSummary(TypedDict):
    """The chosen placement, executed."""

    median_s: float
    spread_s: float
    """Half the width of the confidence interval of the median."""
    repeats: int
    single_session_s: float | None
    """A plain session of the whole model on the best single device of the set."""


class MeasuredRun(TypedDict):
    """One of the things that were run side by side at the end."""

    label: str
    median_s: float
    spread_s: float
    repeats: int


class MeasuredSearch(TypedDict):
    """What the search executed."""

    executed: int
    """Placements."""
    recalled: int
    """Placements that were known from earlier searches on this machine."""
    executing_s: float
    """In which models ran."""
    wall_s: float
    failed: NotRequired[int]
    """Placements that could not be measured: they raised, or took too long or too much memory."""
    retried: NotRequired[int]
    """How often the measuring process was lost (killed, crashed, full of earlier sessions) and what it measured was tried again."""


class MeasuredRecord(MeasuredSummary):
    """What was executed."""

    runs: list[MeasuredRun]
    """At the end, side by side."""
    search: NotRequired[MeasuredSearch]


class Summary(TypedDict):
    """The answer of one `place`."""

    model: str
    ops: int
    groups: int
    planner: str
    objective: Literal["latency", "throughput"]
    makespan_s: float | None
    measured: MeasuredSummary | None
    feasible: bool
    lower_bound_s: float | None
    gap: float | None
    """Fraction by which the makespan lies above the lower bound."""
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


class OpsRecord(TypedDict):
    """All ops, column by column; the schedule is always the simulator's."""

    name: list[str]
    type: list[str]
    device: list[int]
    group: list[int | str | None]
    start_s: list[float]
    end_s: list[float]
    memory_bytes: list[int]
    shapes: NotRequired[list[str]]
    """Of inputs and outputs; empty where they are not known."""
    cost_s: NotRequired[list[list[float | None]]]
    """Seconds on each device; null where it cannot run."""
    held: NotRequired[list[str]]
    """Why it may not go to any device on its own; empty where it may."""


class TransferRecord(TypedDict):
    """One hop of one tensor."""

    tensor: str
    """Name of the op that made it."""
    source: int
    target: int
    start_s: float
    end_s: float
    bytes: int
    channel: str | None


class StepRecord(TypedDict):
    """A change that the policy had drawn, and that made the best placement better."""

    evaluations: int
    """So far."""
    kind: str
    before_s: float | None
    """The best seconds before it."""
    after_s: float | None
    moved: int
    """How many op groups."""
    moves: list[tuple[str, int, int]]
    """(an op of the group, from device, to device) of the first of them."""
    probability: float | None
    """Of the move of one group that was drawn from the policy's odds over all such moves; None where the policy was not asked."""
    chance: float
    """The same if all moves were alike."""


class PlannerRow(TypedDict):
    """One planner on this problem."""

    planner: str
    makespan_s: float | None
    gap: float | None
    evaluations: int
    wall_s: float
    feasible: bool
    error: str | None
    host: NotRequired[str]
    """Of a cluster, on which it ran and its seconds were taken."""


class LowerBoundRecord(TypedDict):
    """No placement can take less."""

    value_s: float
    name: str


class ShapeRecord(TypedDict):
    """The sizes of a model's symbolic dimensions, and simulated seconds of one step at them."""

    dims: dict[str, int]
    makespan_s: float | None


class RunRecord(TypedDict):
    """All of `run.json`.

    `measured` is there exactly when rewards were measured; the makespans of `summary`, `planners`, `history` and
    `stages` are then measured seconds, else simulated ones.
    """

    format: Literal["gnnplace.run/1"]
    summary: Summary
    devices: list[DeviceRecord]
    ops: OpsRecord
    edges: list[tuple[int, int, int]]
    """(producer op, consumer op, bytes)."""
    transfers: list[TransferRecord]
    critical_path: NotRequired[list[Link]]
    """What the makespan of the schedule comes from, in order."""
    memory_over_time: NotRequired[list[list[tuple[float, int]]]]
    """For each device the (seconds, bytes from then on); of many, the peak of each of 2,000 stretches of time."""
    peak_memory_bytes: dict[str, int]
    """By device name."""
    planners: list[PlannerRow]
    kept: NotRequired[str]
    """The planner whose placement is the answer; that of the summary where it is not said."""
    history: list[tuple[int, float, float | None]]
    """(evaluations so far, seconds so far, best seconds) at every improvement."""
    stages: list[tuple[str, float | None]]
    """(stage, best seconds after it)."""
    steps: NotRequired[list[StepRecord]]
    """Of planners that a policy steers, in order; simulated seconds, also where rewards were measured."""
    lower_bound: LowerBoundRecord | None
    measured: MeasuredRecord | None
    shapes: NotRequired[list[ShapeRecord]]
    """All that the placement was made for; the schedule is that of the first."""
    dims_objective: NotRequired[DimsObjective]
    """Which of the seconds at these shapes was minimised."""
    warnings: list[str]
    command: str
    versions: dict[str, str]


def read_run(path: Path) -> RunRecord:
    """The run that a `run.json` describes.

    Raises:
        GnnplaceError: the file is missing, is no JSON, or is no run; the message names the first wrong entry.
    """
    from pydantic import TypeAdapter, ValidationError

    content = read_json(path, GnnplaceError)
    try:
        run = TypeAdapter(RunRecord).validate_python(content)
    except ValidationError as problem:
        first = problem.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole file"
        raise GnnplaceError(
            f"{path}: is no run record ({place}: {first['msg']}); make a new one with gnnplace place"
        ) from None
    num_ops = len(run["ops"]["name"])
    if any(len(column) != num_ops for column in run["ops"].values()):  # type: ignore[arg-type]  # values() of a TypedDict are objects
        raise GnnplaceError(f"{path}: the columns of ops differ in length; make a new one with gnnplace place")
    if not _is_consistent(run):
        raise GnnplaceError(
            f"{path}: names an op or device that it does not list, or a transfer; make a new one with gnnplace place"
        )
    return run


def _is_consistent(run: RunRecord) -> bool:
    """Every index is that of something listed."""
    num_ops, num_devices, num_transfers = len(run["ops"]["name"]), len(run["devices"]), len(run["transfers"])
    path = run.get("critical_path", [])
    ops = [*(op for edge in run["edges"] for op in edge[:2]), *(index for kind, index in path if kind == "op")]
    transfers = [index for kind, index in path if kind == "transfer"]
    devices = [
        *run["ops"]["device"],
        *(end for row in run["transfers"] for end in (row["source"], row["target"])),
        *(end for step in run.get("steps", []) for move in step["moves"] for end in move[1:]),
    ]
    per_device: list[int] = [len(row) for row in run["ops"].get("cost_s", [])]
    if "memory_over_time" in run:
        per_device.append(len(run["memory_over_time"]))
    return (
        all(0 <= op < num_ops for op in ops)
        and all(0 <= transfer < num_transfers for transfer in transfers)
        and all(0 <= device < num_devices for device in devices)
        and all(count == num_devices for count in per_device)
    )

"""All measurements in one SQLite file, by machine, so that commands measure nothing twice."""

import hashlib
import json
import sqlite3
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from gnnplace.arrays import IntArray
from gnnplace.cost.calibrate import FittedRoofline, fit_roofline, fit_segments
from gnnplace.cost.cost_model import Efficiency
from gnnplace.cost.measured import CostStore, KindCosts, LinkCosts, SegmentCosts, median_links, medians
from gnnplace.cost.stored_runs import StoredRuns
from gnnplace.devices.topology import Device
from gnnplace.errors import MeasurementFailed
from gnnplace.graph.op_graph import Op, OpGraph

ENOUGH_SEGMENTS = 50
"""Least number of measured segments to which costs are fitted."""

_WAIT_S = 30.0
_Call: TypeAlias = tuple[str, float, float]
"""Kind of device, seconds of a session call, and when it was stored."""
_DISTURBED = 2.0
"""Multiple of the lower quartile of a kind's session calls above which the machine had other work."""
_TOGETHER_S = 10.0
"""Seconds within which a call and the hand-overs of one profile are stored."""
_MINE = "machine = (SELECT id FROM machine WHERE facts = ?)"
# Statements of each version of the file beyond those of the previous one.
_SCHEMAS = (
    """
CREATE TABLE machine (id INTEGER PRIMARY KEY, facts TEXT NOT NULL UNIQUE);
CREATE TABLE op (
    machine INTEGER NOT NULL REFERENCES machine, kind TEXT NOT NULL, signature TEXT NOT NULL, model TEXT NOT NULL,
    type TEXT NOT NULL, dtype TEXT NOT NULL, flops REAL NOT NULL, bytes_accessed REAL NOT NULL,
    seconds REAL NOT NULL, measured_at REAL NOT NULL);
CREATE INDEX op_by_kind ON op (machine, kind);
CREATE TABLE dispatch (
    machine INTEGER NOT NULL REFERENCES machine, kind TEXT NOT NULL, seconds REAL NOT NULL, measured_at REAL NOT NULL);
CREATE TABLE link (
    machine INTEGER NOT NULL REFERENCES machine, source_kind TEXT NOT NULL, target_kind TEXT NOT NULL,
    latency_s REAL NOT NULL, bandwidth_bytes_per_s REAL NOT NULL, measured_at REAL NOT NULL);
CREATE TABLE roofline (
    machine INTEGER NOT NULL REFERENCES machine, kind TEXT NOT NULL, efficiency TEXT NOT NULL, launch_s REAL NOT NULL,
    measured_at REAL NOT NULL, PRIMARY KEY (machine, kind));
CREATE TABLE placement (
    machine INTEGER NOT NULL REFERENCES machine, model TEXT NOT NULL, pieces TEXT NOT NULL, ratio REAL NOT NULL,
    spread REAL NOT NULL, repeats INTEGER NOT NULL, seconds REAL NOT NULL, measured_at REAL NOT NULL,
    PRIMARY KEY (machine, model, pieces));
""",
    """
CREATE TABLE segment (
    machine INTEGER NOT NULL REFERENCES machine, kind TEXT NOT NULL, model TEXT NOT NULL, ops TEXT NOT NULL,
    expected_s REAL NOT NULL, arrived_bytes REAL NOT NULL, seconds REAL NOT NULL, measured_at REAL NOT NULL);
CREATE INDEX segment_by_kind ON segment (machine, kind);
CREATE TABLE kernel (
    machine INTEGER NOT NULL REFERENCES machine, kind TEXT NOT NULL, model TEXT NOT NULL, kernel_of_op TEXT NOT NULL,
    measured_at REAL NOT NULL, PRIMARY KEY (machine, kind, model));
""",
    """
CREATE TABLE device_link (
    machine INTEGER NOT NULL REFERENCES machine, source TEXT NOT NULL, target TEXT NOT NULL,
    source_kind TEXT NOT NULL, target_kind TEXT NOT NULL,
    latency_s REAL NOT NULL, bandwidth_bytes_per_s REAL NOT NULL, measured_at REAL NOT NULL);
INSERT INTO device_link
    SELECT machine, '', '', source_kind, target_kind, latency_s, bandwidth_bytes_per_s, measured_at FROM link;
DROP TABLE link;
""",
    # The table `placement` keeps the ratios of earlier versions until `drop_biased_ratios`.
    """
CREATE TABLE placement_run (
    machine INTEGER NOT NULL REFERENCES machine, model TEXT NOT NULL, pieces TEXT NOT NULL, candidate_s TEXT NOT NULL,
    reference_s TEXT NOT NULL, reference TEXT NOT NULL, conditions TEXT NOT NULL, measured_at REAL NOT NULL);
CREATE INDEX placement_run_by_model ON placement_run (machine, model, pieces);
""",
    """
CREATE TABLE hand_over (
    machine INTEGER NOT NULL REFERENCES machine, source TEXT NOT NULL, target TEXT NOT NULL,
    source_kind TEXT NOT NULL, target_kind TEXT NOT NULL,
    latency_s REAL NOT NULL, bandwidth_bytes_per_s REAL NOT NULL, next_value_s REAL, measured_at REAL NOT NULL);
INSERT INTO hand_over
    SELECT machine, source, target, source_kind, target_kind, latency_s, bandwidth_bytes_per_s, NULL, measured_at FROM device_link;
DROP TABLE device_link;
""",
)


@dataclass(frozen=True)
class MeasuredSegment:
    """One segment of a placed model, measured beside the others."""

    kind: str
    """Kind of its device."""
    ops: tuple[int, ...]
    expected_s: float
    """Sum of the seconds of its ops."""
    arrived_bytes: float
    """Bytes of the copies that it reads."""
    seconds: float


class MeasurementStore:
    """Measurements of one machine in a file that several machines and processes may share.

    Costs are medians of all measurements, so that they become more certain with use. Session calls that took `_DISTURBED` times
    the usual seconds do not count, nor do the hand-overs that were probed with them: the machine had other work. A link that was
    probed on a busy machine was 400 times as slow as it is, and no placement used it.
    """

    def __init__(self, path: Path, machine: Mapping[str, Any]) -> None:
        """Opens or creates the file `path`. `machine` holds everything that measurements depend on.

        Raises:
            MeasurementFailed: the file is no store, or one of another version.
        """
        self._path, self._facts = path, json.dumps(dict(machine), sort_keys=True)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MeasurementFailed(
                f"{path.parent}: cannot be made ({error.strerror}); set GNNPLACE_CACHE to a folder for measurements"
            ) from error
        with self._connected() as connection:
            if _version(connection) < len(_SCHEMAS):
                connection.execute("BEGIN IMMEDIATE")  # no other process migrates the file at the same time
                for schema in _SCHEMAS[_version(connection) :]:
                    for statement in filter(str.strip, schema.split(";")):
                        connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {len(_SCHEMAS)}")
            elif _version(connection) > len(_SCHEMAS):
                raise MeasurementFailed(
                    f"{path}: holds measurements of version {_version(connection)}, this one reads {len(_SCHEMAS)}; "
                    "use the newer gnnplace that made it, or set GNNPLACE_CACHE to another folder"
                )

    def costs(self, model: str | None = None) -> CostStore:
        """Medians of this machine's measurements; those made in `model` take precedence over those of other models.

        The same op takes longer where its inputs are not in the caches, and hand-overs cost more where runtimes keep values in
        a layout of their own: models differ in both. The costs between two kinds are the medians over their devices.
        """
        with self._connected() as connection:
            ops = self._mine(connection, "kind, signature, seconds, model", "op")
            calls = self._mine(connection, "kind, seconds, measured_at", "dispatch")
            columns = (
                "source, target, source_kind, target_kind, latency_s, bandwidth_bytes_per_s, next_value_s, measured_at"
            )
            probes = self._mine(connection, columns, "hand_over")
            fits = self._mine(connection, "kind, efficiency, launch_s", "roofline")
            segments = self._mine(connection, "kind, model, ops, expected_s, arrived_bytes, seconds", "segment")
        op_s: dict[str, dict[str, float]] = defaultdict(dict)
        for counted in (ops, [row for row in ops if row[3] == model]):
            for (kind, signature), (seconds,) in medians((row[:2], row[2:3]) for row in counted).items():
                op_s[kind][signature] = seconds
        disturbed = _disturbed(calls)
        links = [row[:7] for row in probes if disturbed.isdisjoint(_with_probe(row[2:4], row[7], calls))]
        quiet = (row for row in calls if row not in disturbed)
        overhead_s = {kind: seconds for kind, (seconds,) in medians((row[0], row[1:2]) for row in quiet).items()}
        begun = _segment_costs(segments) | _segment_costs(row for row in segments if row[1] == model)
        fitted = {
            kind: ({name: Efficiency(*pair) for name, pair in json.loads(text).items()}, launch_s)
            for kind, text, launch_s in fits
        }
        kinds = {
            kind: KindCosts(op_s[kind], overhead_s.get(kind), begun.get(kind), *fitted.get(kind, (None, None)))
            for kind in sorted({*op_s, *fitted, *begun, *overhead_s})
        }
        pairs = median_links((row[:4], LinkCosts(*row[4:])) for row in links)
        of_kinds = median_links((ends[2:], costs) for ends, costs in pairs.items())
        # Rows from before version 3 name no devices.
        return CostStore(kinds, of_kinds, {ends[:2]: costs for ends, costs in pairs.items() if ends[0]})

    def add_ops(self, device: Device, model: str, graph: OpGraph, op_s: Mapping[str, float]) -> None:
        """Adds the seconds `op_s` by signature of a model's ops, and fits a roofline to all ops of the kind of `device`."""
        first = {signature: op for op, signature in reversed(list(enumerate(graph.signatures))) if signature in op_s}
        columns = (graph.op_types, graph.dtypes, graph.flops.tolist(), graph.bytes_accessed.tolist())
        rows = [
            (device.kind, signature, model, *(column[op] for column in columns), op_s[signature])
            for signature, op in first.items()
        ]
        with self._connected() as connection:
            self._insert(connection, "op", rows)
            fields = "kind, signature, type, dtype, flops, bytes_accessed, seconds"
            known = (row for row in self._mine(connection, fields, "op") if row[0] == device.kind)
            fit = _fitted(device, medians((row[1:6], row[6:]) for row in known))
            if fit is not None:
                efficiency = {name: [value.compute, value.bandwidth] for name, value in fit.efficiency.items()}
                self._insert(connection, "roofline", [(device.kind, json.dumps(efficiency), fit.launch_s)])

    def add_dispatch(self, kind: str, seconds: float) -> None:
        """Adds the seconds of one more session call on devices of one kind."""
        self._add("dispatch", (kind, seconds))

    def add_link(self, source: Device, target: Device, costs: LinkCosts) -> None:
        """Adds the costs of a hand-over from one device to another."""
        self._add("hand_over", (source.name, target.name, source.kind, target.kind, *astuple(costs)))

    def add_segments(self, model: str, segments: Iterable[MeasuredSegment]) -> None:
        """Adds segments of a model."""
        rows = ((s.kind, model, _digest(s.ops), s.expected_s, s.arrived_bytes, s.seconds) for s in segments)
        self._add("segment", *rows)

    def knows_segments(self, kinds: Collection[str], model: str) -> bool:
        """Whether each of the kinds has run a segment of the model."""
        with self._connected() as connection:
            rows = self._mine(connection, "DISTINCT kind, model", "segment")
        return {(kind, model) for kind in kinds} <= set(rows)

    def kernels(self, kinds: Collection[str], model: str) -> list[IntArray]:
        """`[N]` for each of the kinds that has run the model: ops with the same number are one kernel."""
        with self._connected() as connection:
            rows = self._mine(connection, "kind, model, kernel_of_op", "kernel")
        return [np.array(json.loads(row[2]), dtype=np.int64) for row in rows if row[0] in kinds and row[1] == model]

    def add_kernels(self, kind: str, model: str, kernel_of_op: IntArray) -> None:
        """Records which ops the runtime fuses into one kernel; replaces an earlier record of the model."""
        self._add("kernel", (kind, model, json.dumps(kernel_of_op.tolist())))

    def forget_model(self, kinds: Collection[str], model: str) -> None:
        """Deletes the stored seconds of a model's ops and segments on devices of these kinds."""
        with self._connected() as connection:
            for table in ("op", "segment"):
                connection.executemany(
                    f"DELETE FROM {table} WHERE {_MINE} AND model = ? AND kind = ?",
                    [(self._facts, model, kind) for kind in sorted(kinds)],
                )

    def placement_runs(self, model: str, pieces: object) -> list[StoredRuns]:
        """All runs of a placed model; `pieces` is JSON with the device of each op, `model` everything else."""
        with self._connected() as connection:
            rows = connection.execute(
                f"SELECT candidate_s, reference_s, reference, conditions, measured_at FROM placement_run WHERE {_MINE} "
                "AND model = ? AND pieces = ?",
                (self._facts, model, _digest(pieces)),
            ).fetchall()
        return [
            StoredRuns(tuple(json.loads(row[0])), tuple(json.loads(row[1])), row[2], json.loads(row[3]), row[4])
            for row in rows
        ]

    def add_placement_runs(self, model: str, pieces: object, runs: StoredRuns) -> None:
        """Adds the runs of a placed model, measured now."""
        columns = (
            json.dumps(runs.candidate_s),
            json.dumps(runs.reference_s),
            runs.reference,
            json.dumps(runs.conditions),
        )
        self._add("placement_run", (model, _digest(pieces), *columns))

    def drop_biased_ratios(self) -> int:
        """Deletes the ratios that versions before 4 stored; returns their number.

        Their reference ran in every second round and always before the placement, with cold caches: an equal model measured 0.73.
        """
        with self._connected() as connection:
            (count,) = connection.execute("SELECT COUNT(*) FROM placement").fetchone()
            if count:
                connection.execute("DELETE FROM placement")
        return int(count)

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """A connection that commits all changes at the end, or none."""
        try:
            with closing(sqlite3.connect(self._path, timeout=_WAIT_S)) as connection, connection:
                yield connection
        except sqlite3.Error as error:
            advice = "delete the file" if _is_broken(error) else "make room or let it be written"
            raise MeasurementFailed(
                f"{self._path}: measurements cannot be kept there ({error}); {advice}, or set GNNPLACE_CACHE to another folder"
            ) from error

    def _mine(self, connection: sqlite3.Connection, columns: str, table: str) -> list[tuple[Any, ...]]:
        """The rows of this machine."""
        return connection.execute(f"SELECT {columns} FROM {table} WHERE {_MINE}", (self._facts,)).fetchall()

    def _add(self, table: str, *rows: tuple[Any, ...]) -> None:
        with self._connected() as connection:
            self._insert(connection, table, rows)

    def _insert(self, connection: sqlite3.Connection, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Adds rows of this machine, measured now; a row with the same key replaces the earlier one."""
        connection.execute("INSERT OR IGNORE INTO machine (facts) VALUES (?)", (self._facts,))
        (machine,) = connection.execute("SELECT id FROM machine WHERE facts = ?", (self._facts,)).fetchone()
        now = time.time()
        for row in rows:
            marks = ", ".join("?" * (len(row) + 2))
            connection.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", (machine, *row, now))


def _disturbed(calls: Sequence[_Call]) -> set[_Call]:
    """The session calls that took much longer than usual."""
    seconds_of: dict[str, list[float]] = defaultdict(list)
    for kind, seconds, _ in calls:
        if seconds > 0:  # else it was lost in noise
            seconds_of[kind].append(seconds)
    usual_s = {kind: float(np.quantile(seconds, 0.25)) for kind, seconds in seconds_of.items()}
    return {call for call in calls if call[1] > _DISTURBED * usual_s.get(call[0], np.inf)}


def _with_probe(kinds: Collection[str], probed_at: float, calls: Sequence[_Call]) -> list[_Call]:
    """The last session call of each kind that was stored with the probe of a link."""
    near = sorted((call for call in calls if 0 <= probed_at - call[2] < _TOGETHER_S), key=itemgetter(2))
    return list({call[0]: call for call in near if call[0] in kinds}.values())


def _fitted(device: Device, seconds: Mapping[tuple[Any, ...], Sequence[float]]) -> FittedRoofline | None:
    """The roofline of ops (signature, type, dtype, FLOPs, bytes); None where no op takes any time."""
    ops = [
        Op(f"op {number}", op_type, flops=flops, bytes_accessed=bytes_accessed, dtype=dtype)
        for number, (_, op_type, dtype, flops, bytes_accessed) in enumerate(seconds)
    ]
    measured_s = np.array(list(seconds.values()), dtype=np.float64).reshape(-1)
    return fit_roofline(OpGraph.build(device.kind, ops), device, measured_s) if (measured_s > 0).any() else None


def _segment_costs(rows: Iterable[tuple[Any, ...]]) -> dict[str, SegmentCosts]:
    """Segment costs of the kinds with enough segments; each segment counts once, with the medians of its measurements."""
    known: dict[str, list[list[float]]] = defaultdict(list)
    for (kind, _, _), figures in medians((row[:3], row[3:]) for row in rows).items():
        known[kind].append(figures)
    return {kind: fit_segments(*np.array(found).T) for kind, found in known.items() if len(found) >= ENOUGH_SEGMENTS}


def _is_broken(error: sqlite3.Error) -> bool:
    """Whether the file itself is no store, so that a writable disk would not help."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    return code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR)


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _digest(pieces: object) -> str:
    return hashlib.sha256(json.dumps(pieces).encode()).hexdigest()

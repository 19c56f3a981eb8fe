"""Everything that was measured, in one SQLite file, by the machine that it was measured on: so that nothing is measured twice."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import statistics
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gnnplace.arrays import IntArray
from gnnplace.cost.calibrate import FittedRoofline, fit_roofline, fit_segments
from gnnplace.cost.cost_model import Efficiency
from gnnplace.cost.measured import CostStore, KindCosts, LinkCosts, SegmentCosts, median_links
from gnnplace.devices.topology import Device
from gnnplace.errors import MeasurementFailed
from gnnplace.graph.op_graph import Op, OpGraph

__all__ = [
    "ENOUGH_SEGMENTS", "MeasuredOp", "MeasuredSegment", "MeasurementStore", "StoredPlacement", "measured_ops",
]  # fmt: skip

ENOUGH_SEGMENTS = 50
"""From which on what they cost besides their ops is believed."""

_WAIT_S = 30.0
_MINE = "machine = (SELECT id FROM machine WHERE facts = ?)"
# By version of the file: what each one adds to the one before.
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
)


@dataclass(frozen=True)
class MeasuredOp:
    """One op of a model on devices of one kind."""

    signature: str
    type: str
    dtype: str
    flops: float
    bytes_accessed: float
    seconds: float


@dataclass(frozen=True)
class StoredPlacement:
    """One placed model, relative to a plain session of the whole model that ran in turns with it."""

    ratio: float
    """Median seconds over those of the plain session."""
    spread: float
    """Half the width of the ratio's 95 % interval."""
    repeats: int
    seconds: float
    """As they were."""


@dataclass(frozen=True)
class MeasuredSegment:
    """One segment of a placed model as it ran beside the others."""

    kind: str
    """Of its device."""
    ops: tuple[int, ...]
    expected_s: float
    """The sum of its ops."""
    arrived_bytes: float
    """Of the copies that it reads."""
    seconds: float


def measured_ops(graph: OpGraph, op_s: Mapping[str, float]) -> list[MeasuredOp]:
    """The ops of a graph by signature, with seconds by signature `op_s`.

    >>> from gnnplace.graph.op_graph import Op
    >>> graph = OpGraph.build("g", [Op("a", "Relu", signature="Relu 4"), Op("b", "Relu", signature="Relu 4")])
    >>> [(op.signature, op.seconds) for op in measured_ops(graph, {"Relu 4": 2e-6})]
    [('Relu 4', 2e-06)]
    """
    first = {signature: op for op, signature in reversed(list(enumerate(graph.signatures)))}
    return [
        MeasuredOp(
            signature,
            graph.op_types[op],
            graph.dtypes[op],
            float(graph.flops[op]),
            float(graph.bytes_accessed[op]),
            op_s[signature],
        )
        for signature, op in first.items()
        if signature in op_s
    ]


class MeasurementStore:
    """Measurements of one machine in a file that others may share; several processes may use it at once.

    What was measured several times counts with its median, so costs become more certain with use.

    >>> from gnnplace.files import temporary_folder
    >>> rates = {"peak_flops_per_s": {"float32": 1e9}, "memory_bandwidth_bytes_per_s": 1e9}
    >>> core, other = Device("cpu:0", "core", **rates), Device("cpu:1", "core", **rates)
    >>> pieces, half = [["core", [0, 1]]], StoredPlacement(ratio=0.5, spread=0.01, repeats=20, seconds=2e-3)
    >>> with temporary_folder() as folder:
    ...     store = MeasurementStore(folder / "measured.sqlite", {"cpu": "mine"})
    ...     for seconds in (1e-6, 9e-6, 2e-6):
    ...         store.add_ops(core, "model", [MeasuredOp("Relu 4", "Relu", "float32", 4.0, 32.0, seconds)])
    ...     store.add_dispatch("core", 1e-5)
    ...     store.add_link(core, other, LinkCosts(1e-6, 1e9))
    ...     store.add_segments("model", [MeasuredSegment("core", (0, 1), 1e-5, 32.0, 1.1e-5)])
    ...     store.add_kernels("core", "model", np.array([0, 0, 1]))
    ...     store.add_placement("model", pieces, half)
    ...     costs, kernels = store.costs(), store.kernels(["core"], "model")
    ...     found = store.placement("model", pieces)
    ...     known = [store.knows_segments(["core"], model) for model in ("model", "another")]
    >>> costs.kinds["core"].op_s, costs.device_links
    ({'Relu 4': 2e-06}, {('cpu:0', 'cpu:1'): LinkCosts(latency_s=1e-06, bandwidth_bytes_per_s=1000000000.0)})
    >>> kernels[0].tolist(), found == half, known
    ([0, 0, 1], True, [True, False])
    """

    def __init__(self, path: Path, machine: Mapping[str, Any]) -> None:
        """Opens `path`, and makes it where it is not there. `machine` says all that measurements depend on.

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
                connection.execute("BEGIN IMMEDIATE")  # nobody else brings it up to date meanwhile
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
        """Medians of all that was measured on this machine, between two kinds of the medians between their devices; of `model`, what was measured in it counts before what others say.

        The same op takes longer where its inputs are not in the caches, and handing over costs more where runtimes keep values
        in a layout of their own: models differ in both.
        """
        with self._connected() as connection:
            ops = self._mine(connection, "kind, signature, seconds, model", "op")
            dispatch = self._mine(connection, "kind, seconds", "dispatch")
            columns = "source, target, source_kind, target_kind, latency_s, bandwidth_bytes_per_s"
            links = self._mine(connection, columns, "device_link")
            fits = self._mine(connection, "kind, efficiency, launch_s", "roofline")
            segments = self._mine(connection, "kind, model, ops, expected_s, arrived_bytes, seconds", "segment")
        op_s: dict[str, dict[str, float]] = defaultdict(dict)
        for counted in (ops, [row for row in ops if row[3] == model]):
            for (kind, signature), seconds in _medians((row[:2], row[2]) for row in counted).items():
                op_s[kind][signature] = seconds
        overhead_s = _medians(((kind,), seconds) for kind, seconds in dispatch)
        begun = _segment_costs(segments) | _segment_costs(row for row in segments if row[1] == model)
        fitted = {kind: (_efficiency(text), launch_s) for kind, text, launch_s in fits}
        kinds = {
            kind: KindCosts(op_s[kind], overhead_s.get((kind,)), begun.get(kind), *fitted.get(kind, (None, None)))
            for kind in sorted({*op_s, *fitted, *begun, *(kind for (kind,) in overhead_s)})
        }
        pairs = median_links((row[:4], LinkCosts(*row[4:])) for row in links)
        of_kinds = median_links((ends[2:], costs) for ends, costs in pairs.items())
        # Before version 3 nobody noted between which devices of the kinds it was.
        return CostStore(kinds, of_kinds, {ends[:2]: costs for ends, costs in pairs.items() if ends[0]})

    def add_ops(self, device: Device, model: str, ops: Iterable[MeasuredOp]) -> None:
        """Keeps the ops of a model on devices of one kind, and fits the roofline of `device` to all ops that are known there."""
        with self._connected() as connection:
            self._insert(
                connection,
                "op",
                [
                    (device.kind, op.signature, model, op.type, op.dtype, op.flops, op.bytes_accessed, op.seconds)
                    for op in ops
                ],
            )
            columns = "kind, signature, type, dtype, flops, bytes_accessed, seconds"
            known = (row for row in self._mine(connection, columns, "op") if row[0] == device.kind)
            fit = _fitted(device, _medians((row[1:6], row[6]) for row in known))
            if fit is not None:
                efficiency = {name: [value.compute, value.bandwidth] for name, value in fit.efficiency.items()}
                self._insert(connection, "roofline", [(device.kind, json.dumps(efficiency), fit.launch_s)])

    def add_dispatch(self, kind: str, seconds: float) -> None:
        """Keeps what one more call costs on devices of one kind."""
        with self._connected() as connection:
            self._insert(connection, "dispatch", [(kind, seconds)])

    def add_link(self, source: Device, target: Device, costs: LinkCosts) -> None:
        """Keeps what a handover from one device to another costs."""
        row = (source.name, target.name, source.kind, target.kind, costs.latency_s, costs.bandwidth_bytes_per_s)
        with self._connected() as connection:
            self._insert(connection, "device_link", [row])

    def add_segments(self, model: str, found: Iterable[MeasuredSegment]) -> None:
        """Keeps segments of a model."""
        rows = [(s.kind, model, _digest(s.ops), s.expected_s, s.arrived_bytes, s.seconds) for s in found]
        with self._connected() as connection:
            self._insert(connection, "segment", rows)

    def knows_segments(self, kinds: Collection[str], model: str) -> bool:
        """Some segment of the model has run on each of the kinds."""
        with self._connected() as connection:
            rows = self._mine(connection, "DISTINCT kind, model", "segment")
        return {(kind, model) for kind in kinds} <= set(rows)

    def kernels(self, kinds: Collection[str], model: str) -> list[IntArray]:
        """`[N]` for each of the kinds that has run the model: ops that one kernel does have the same number."""
        with self._connected() as connection:
            rows = self._mine(connection, "kind, model, kernel_of_op", "kernel")
        return [np.array(json.loads(row[2]), dtype=np.int64) for row in rows if row[0] in kinds and row[1] == model]

    def add_kernels(self, kind: str, model: str, kernel_of_op: IntArray) -> None:
        """Keeps what a runtime makes one kernel of; of the same model, the newest one counts."""
        with self._connected() as connection:
            self._insert(connection, "kernel", [(kind, model, json.dumps(kernel_of_op.tolist()))])

    def placement(self, model: str, pieces: object) -> StoredPlacement | None:
        """What is known of the placed model; `pieces`, which JSON can hold, says what runs where, `model` says all else."""
        with self._connected() as connection:
            row = connection.execute(
                f"SELECT ratio, spread, repeats, seconds FROM placement WHERE {_MINE} AND model = ? AND pieces = ?",
                (self._facts, model, _digest(pieces)),
            ).fetchone()
        return None if row is None else StoredPlacement(*row)

    def add_placement(self, model: str, pieces: object, measured: StoredPlacement) -> None:
        """Keeps a measurement; of the same placed model, the newest one counts."""
        row = (model, _digest(pieces), measured.ratio, measured.spread, measured.repeats, measured.seconds)
        with self._connected() as connection:
            self._insert(connection, "placement", [row])

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """A connection whose changes are kept all together at the end, or not at all."""
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

    def _insert(self, connection: sqlite3.Connection, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Adds rows of this machine, measured now; where a table has one row per key, the new one takes its place."""
        connection.execute("INSERT OR IGNORE INTO machine (facts) VALUES (?)", (self._facts,))
        (machine,) = connection.execute("SELECT id FROM machine WHERE facts = ?", (self._facts,)).fetchone()
        now = time.time()
        for row in rows:
            marks = ", ".join("?" * (len(row) + 2))
            connection.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", (machine, *row, now))


def _fitted(device: Device, seconds: Mapping[tuple[Any, ...], float]) -> FittedRoofline | None:
    """The roofline through ops (signature, type, dtype, FLOPs, bytes); None where no op takes time by itself."""
    ops = [
        Op(f"op {number}", op_type, flops=flops, bytes_accessed=bytes_accessed, dtype=dtype)
        for number, (_, op_type, dtype, flops, bytes_accessed) in enumerate(seconds)
    ]
    measured_s = np.array(list(seconds.values()), dtype=np.float64)
    return fit_roofline(OpGraph.build(device.kind, ops), device, measured_s) if (measured_s > 0).any() else None


def _segment_costs(rows: Iterable[tuple[Any, ...]]) -> dict[str, SegmentCosts]:
    """By kind, of which enough segments are known; each segment counts once, with the medians of what was measured."""
    known: dict[str, list[list[float]]] = defaultdict(list)
    several: dict[tuple[str, str, str], list[Sequence[float]]] = defaultdict(list)
    for kind, model, ops, *figures in rows:
        several[kind, model, ops].append(figures)
    for (kind, _, _), figures in several.items():
        known[kind].append([statistics.median(values) for values in zip(*figures, strict=True)])
    return {kind: fit_segments(*np.array(found).T) for kind, found in known.items() if len(found) >= ENOUGH_SEGMENTS}


def _is_broken(error: sqlite3.Error) -> bool:
    """The file is no store, whatever is done about its disk."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    return code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR)


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _medians(rows: Iterable[tuple[tuple[Any, ...], float]]) -> dict[tuple[Any, ...], float]:
    several: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for key, value in rows:
        several[key].append(value)
    return {key: statistics.median(values) for key, values in several.items()}


def _efficiency(text: str) -> dict[str, Efficiency]:
    return {name: Efficiency(*pair) for name, pair in json.loads(text).items()}


def _digest(pieces: object) -> str:
    return hashlib.sha256(json.dumps(pieces).encode()).hexdigest()

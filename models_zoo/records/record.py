"""A record, and its file `gnnplace.record/1`."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gnnplace.devices.json_format import read_topology, topology_to_json
from gnnplace.errors import GnnplaceError, did_you_mean
from gnnplace.files import read_json, write_text
from gnnplace.graph.json_format import read_graph, write_graph
from gnnplace.json_fields import checked_format
from gnnplace.placement import Placement
from models_zoo.networks.shipped import read_structure
from models_zoo.records.names import FOLDER, record_names

if TYPE_CHECKING:
    from gnnplace.devices.topology import Topology
    from gnnplace.graph.op_graph import OpGraph

S = TypeVar("S", np.int16, np.float64)
_FORMAT = "gnnplace.record/1"
EQUAL, OPTIMAL = 1e-9, 1e-3
"""Relative difference of seconds that is none, and the gap below which a placement counts as optimal."""


@dataclass(frozen=True)
class Found:
    """How a placement was found."""

    planner: str
    """Name of the planner; of a placement that somebody gave, the one that its file states, or else the name of the file."""
    seconds: float | None = None
    """Seconds that the search was given; None for a given placement."""
    evaluations: int | None = None
    seed: int | None = None


@dataclass(frozen=True, eq=False)
class Record:
    """The best known placement of a graph on a device set.

    >>> record = load_record("layered_200-k40x4")
    >>> record.graph, record.devices, record.makespan_s >= record.lower_bound_s
    ('layered_200', 'k40x4', True)
    >>> record.read_graph().num_ops == len(record.placement.assignment)
    True
    """

    name: str
    graph: str
    """Name of a graph of the zoo without `zoo:`, or of a file in `graphs/`."""
    devices: str
    """Name of a file in `devices/`."""
    max_groups: int | None
    """Largest number of op groups that planners decide on, None where they choose; the placement is of ops, so finer ones are welcome."""
    type_spread: float
    """Spread of `PerTypeCost` around the roofline; 0 for the roofline itself."""
    type_seed: int
    ops: int
    num_devices: int
    lower_bound_s: float
    lower_bound: str
    """Name of the bound, or of the planner that proved it."""
    makespan_s: float
    placement: Placement
    found: Found
    results: Mapping[str, float] = field(default_factory=dict)
    """Least seconds of each planner that was run on this record, by its name and the seconds of its search."""
    folder: Path = FOLDER

    @property
    def gap(self) -> float:
        """Seconds above the lower bound, as a fraction of the bound; 0 where the placement is optimal."""
        return self.makespan_s / self.lower_bound_s - 1.0

    def read_graph(self) -> OpGraph:
        """The op graph."""
        path = _graph_file(self.graph, self.folder)
        return read_graph(path) if path.exists() else read_structure(self.graph)

    def read_devices(self) -> Topology:
        """The devices and links."""
        return read_topology(_devices_file(self.devices, self.folder))


def load_record(name: str, folder: Path = FOLDER) -> Record:
    """The record of this name.

    >>> load_record("layered_200-k40x4").ops
    200

    Raises:
        GnnplaceError: there is no such record, or its file is damaged.
    """
    path = folder / "cases" / f"{name}.json"
    known = record_names(folder)
    if name not in known:
        raise GnnplaceError(f"there is no record {name!r}; {did_you_mean(name, known, '`gnnplace records` lists all')}")
    row = checked_format(read_json(path, GnnplaceError), _FORMAT, str(path), GnnplaceError)
    found, results = row.object("found").fields, row.object("results")
    try:
        placement, how = unpacked_placement(row.fields), Found(**found)
    except (KeyError, ValueError, TypeError, zlib.error) as problem:
        raise GnnplaceError(f"{path}: the record is damaged ({problem}); take the file from the repository") from None
    return Record(
        name,
        row.text("graph"),
        row.text("devices"),
        None if row.fields.get("max_groups") is None else row.count("max_groups"),
        row.cost("type_spread"),
        row.count("type_seed"),
        row.count("ops"),
        row.count("num_devices"),
        row.cost("lower_bound_s"),
        row.text("lower_bound"),
        row.cost("makespan_s"),
        placement,
        how,
        {planner: results.cost(planner) for planner in results.fields},
        folder,
    )


def write_record(record: Record) -> None:
    """Writes a record into its folder, where `load_record` finds it."""
    document = {
        "format": _FORMAT,
        "graph": record.graph,
        "devices": record.devices,
        "max_groups": record.max_groups,
        "type_spread": record.type_spread,
        "type_seed": record.type_seed,
        "ops": record.ops,
        "num_devices": record.num_devices,
        "lower_bound_s": record.lower_bound_s,
        "lower_bound": record.lower_bound,
        "makespan_s": record.makespan_s,
        "found": {key: value for key, value in asdict(record.found).items() if value is not None},
        "results": dict(sorted(record.results.items())),
        **packed_placement(record.placement),
    }
    path = record.folder / "cases" / f"{record.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def store_graph(name: str, graph: OpGraph, folder: Path = FOLDER) -> None:
    """Writes a graph that the zoo does not have into `graphs/`; one that is there already stays."""
    path = _graph_file(name, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        write_graph(graph, path)


def store_devices(name: str, topology: Topology, folder: Path = FOLDER) -> None:
    """Writes a device set into `devices/`.

    Raises:
        GnnplaceError: another set of this name is there already.
    """
    path = _devices_file(name, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(topology_to_json(topology), separators=(",", ":")) + "\n"
    if not path.exists():
        write_text(path, text)
    elif path.read_text(encoding="utf-8") != text:
        raise GnnplaceError(
            f"{path}: has other devices than {name!r} has now; records of the old ones need another name"
        )


def packed_placement(placement: Placement) -> dict[str, str]:
    """A placement as fields of a JSON object: `placement`, and `priorities` if it has any."""
    fields = {"placement": packed(placement.assignment.astype(np.int16))}
    return fields if placement.priorities is None else fields | {"priorities": packed(placement.priorities)}


def unpacked_placement(fields: Mapping[str, Any]) -> Placement:
    """The placement in the fields that `packed_placement` makes.

    Raises:
        KeyError, TypeError, ValueError, zlib.error: a field is missing or damaged.
    """
    assignment = unpacked(fields["placement"], np.int16).astype(np.int64)
    priorities = fields.get("priorities")
    return Placement(assignment, None if priorities is None else unpacked(priorities, np.float64))


def packed(values: np.ndarray[Any, np.dtype[S]]) -> str:
    """Numbers as compressed text.

    >>> unpacked(packed(np.array([0, 1, 1], np.int16)), np.int16).tolist()
    [0, 1, 1]
    """
    return base64.b64encode(zlib.compress(values.astype(values.dtype.newbyteorder("<")).tobytes(), 9)).decode()


def unpacked(text: str, kind: type[S]) -> np.ndarray[Any, np.dtype[S]]:
    """Numbers `[N]` of this kind from the text that `packed` makes of them.

    Raises:
        ValueError, zlib.error: the text is damaged.
    """
    return np.frombuffer(zlib.decompress(base64.b64decode(text, validate=True)), np.dtype(kind).newbyteorder("<"))


def _graph_file(name: str, folder: Path) -> Path:
    return folder / "graphs" / f"{name.replace(':', '.')}.json.gz"


def _devices_file(name: str, folder: Path) -> Path:
    return folder / "devices" / f"{name}.json"

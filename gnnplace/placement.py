"""Placements of ops on devices: legality, the placement file, random placements."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gnnplace.arrays import BoolArray, FloatArray, IntArray, frozen
from gnnplace.devices.topology import Topology
from gnnplace.errors import InvalidPlacement, did_you_mean, shown
from gnnplace.files import read_json, write_text
from gnnplace.graph.op_graph import OpGraph

_FORMAT = "gnnplace.placement/1"
_NAME = 100  # characters of an unknown name that are compared with known names


@dataclass(frozen=True, eq=False)
class Placement:
    """A device index per op and, optionally, priorities: larger ones run first, None means upward rank.

    >>> placement = Placement(np.array([0, 1]))
    >>> placement.assignment.tolist(), placement.assignment.flags.writeable, placement.priorities
    ([0, 1], False, None)
    """

    assignment: IntArray  # [N]
    priorities: FloatArray | None = None  # [N]

    def __post_init__(self) -> None:
        """Raises InvalidPlacement unless the assignment is a row of whole numbers."""
        given = np.asarray(self.assignment)
        is_whole = given.dtype.kind in "iu" or (given.dtype.kind == "f" and bool((given % 1 == 0).all()))
        if given.ndim != 1 or not is_whole:
            raise InvalidPlacement(
                f"the assignment is {shown(self.assignment)}; expected the number of a device per op"
            )
        object.__setattr__(self, "assignment", frozen(given, np.int64))
        if self.priorities is not None:
            object.__setattr__(self, "priorities", frozen(self.priorities, np.float64))

    def expanded(self, group_of_op: IntArray) -> Placement:
        """The placement of ops from this one of groups; each op takes the device and the priority of its group."""
        priorities = None if self.priorities is None else self.priorities[group_of_op]
        return Placement(self.assignment[group_of_op], priorities)


def allowed_mask(graph: OpGraph, topology: Topology) -> BoolArray:
    """`[N, D]` true where the op may run, by its `devices` and those of all ops of its colocation group.

    >>> from gnnplace.devices.topology import Device
    >>> from gnnplace.graph.op_graph import Op
    >>> graph = OpGraph.build("g", [Op("a"), Op("b", devices=("gpu",))])
    >>> allowed_mask(graph, Topology("t", (Device("cpu:0", "cpu"), Device("gpu:0", "gpu")))).tolist()
    [[True, True], [False, True]]

    Raises:
        InvalidPlacement: no device may run an op or a colocation group.
    """
    mask = np.ones((graph.num_ops, topology.num_devices), dtype=np.bool_)
    rows: dict[tuple[str, ...], BoolArray] = {}
    for op, allowed in enumerate(graph.allowed_devices):
        if allowed is None:
            continue
        if allowed not in rows:
            rows[allowed] = np.array([d.name in allowed or d.kind in allowed for d in topology.devices])
        mask[op] = rows[allowed]
    grouped = np.flatnonzero(graph.colocation >= 0)
    if grouped.size:
        together = np.ones((len(graph.colocation_names), topology.num_devices), dtype=np.bool_)
        np.logical_and.at(together, graph.colocation[grouped], mask[grouped])
        mask[grouped] = together[graph.colocation[grouped]]
    nowhere = np.flatnonzero(~mask.any(axis=1))
    if nowhere.size:
        op = int(nowhere[0])
        raise InvalidPlacement(
            f"op {graph.op_names[op]!r} may run on {', '.join(graph.allowed_devices[op] or ('no common device of its group',))}; "
            f"the devices are {', '.join(f'{d.name} ({d.kind})' for d in topology.devices)}: add one that fits"
        )
    return mask


def check_legal(graph: OpGraph, topology: Topology, placement: Placement) -> None:
    """Checks that each op is on a device that may run it, colocation groups are whole, and each tensor has a route.

    >>> from gnnplace.devices.topology import Device
    >>> from gnnplace.graph.op_graph import Op, Tensor
    >>> graph = OpGraph.build("g", [Op("a"), Op("b")], [Tensor("a", 4, ("b",))])
    >>> apart = Topology("apart", (Device("x"), Device("y")))
    >>> check_legal(graph, apart, Placement(np.array([1, 1])))
    >>> check_legal(graph, apart, Placement(np.array([0, 1])))
    Traceback (most recent call last):
        ...
    gnnplace.errors.InvalidPlacement: a tensor goes from 'x' to 'y', which no link or host connects; add a link

    Raises:
        InvalidPlacement: a check fails; the message names the op.
    """
    assignment = placement.assignment
    if assignment.shape != (graph.num_ops,):
        raise InvalidPlacement(f"the placement has {assignment.size} ops, the graph {graph.num_ops}")
    for label, values in (("device index", assignment), ("priority", placement.priorities)):
        if values is None:
            continue
        if values.shape != (graph.num_ops,):
            raise InvalidPlacement(f"the placement has {values.size} entries of {label} for {graph.num_ops} ops")
        bad = ~np.isfinite(values) if label == "priority" else (values < 0) | (values >= topology.num_devices)
        if bad.any():
            op = int(np.flatnonzero(bad)[0])
            raise InvalidPlacement(f"op {graph.op_names[op]!r} has the {label} {values[op]}")
    allowed = allowed_mask(graph, topology)
    bad_ops = np.flatnonzero(~allowed[np.arange(graph.num_ops), assignment])
    if bad_ops.size:
        op = int(bad_ops[0])
        raise InvalidPlacement(
            f"op {graph.op_names[op]!r} may not run on {topology.devices[assignment[op]].name!r}; "
            f"allowed: {', '.join(topology.device_names[d] for d in np.flatnonzero(allowed[op]))}"
        )
    for group, name in enumerate(graph.colocation_names):
        used = np.unique(assignment[graph.colocation == group])
        if used.size > 1:
            raise InvalidPlacement(
                f"colocation group {name!r} is spread over {', '.join(topology.device_names[d] for d in used)}"
            )
    producers, consumers = graph.edges
    pairs = np.unique(np.stack([assignment[producers], assignment[consumers]], axis=1), axis=0)
    for source, target in pairs.tolist():
        if source != target and topology.route(source, target) is None:
            raise InvalidPlacement(
                f"a tensor goes from {topology.device_names[source]!r} to {topology.device_names[target]!r}, "
                "which no link or host connects; add a link"
            )


def resident_bytes(graph: OpGraph, assignment: IntArray, num_devices: int) -> IntArray:
    """`[D]` bytes of weights on each device; a shared weight counts once per device that reads it.

    Where devices share a memory, pass the first device of each op's memory (`Topology.memory_home`).

    >>> from gnnplace.graph.op_graph import Op, SharedWeight
    >>> graph = OpGraph.build("g", [Op("a", memory_bytes=8), Op("b")], [], [SharedWeight(4, ("a", "b"))])
    >>> resident_bytes(graph, np.array([0, 1]), 2).tolist()
    [12, 4]
    """
    resident = np.zeros(num_devices, dtype=np.int64)
    np.add.at(resident, assignment, graph.memory_bytes)
    weight = np.repeat(np.arange(len(graph.weight_bytes)), np.diff(graph.weight_offsets))
    held = np.zeros((len(graph.weight_bytes), num_devices), dtype=np.int64)
    held[weight, assignment[graph.weight_consumers]] = 1
    return np.asarray(resident + graph.weight_bytes @ held)


def scattered(graph: OpGraph, num_devices: int, rng: np.random.Generator) -> IntArray:
    """`[N]` a random assignment with equal numbers of ops and colocation groups per device, up to one more.

    It ignores the devices that ops list as allowed.

    >>> from gnnplace.graph.op_graph import Op, OpGraph
    >>> graph = OpGraph.build("g", [Op("a"), Op("b", group="both"), Op("c", group="both")], [])
    >>> scattered(graph, 2, np.random.default_rng(0)).tolist()
    [1, 0, 0]
    """
    free = graph.colocation < 0
    unit = np.where(free, len(graph.colocation_names) + np.cumsum(free) - 1, graph.colocation)
    return np.asarray((rng.permutation(int(unit.max(initial=-1)) + 1) % num_devices)[unit])


def save_placement(
    path: Path, graph: OpGraph, topology: Topology, placement: Placement, facts: Mapping[str, Any]
) -> None:
    """Writes a placement; `facts` adds the other keys of the format (`model`, `evaluation`, `planner`, `seed`, `version`).

    >>> from gnnplace.files import temporary_folder
    >>> from gnnplace.devices.topology import Device
    >>> from gnnplace.graph.op_graph import Op
    >>> graph, pair = OpGraph.build("g", [Op("a"), Op("b")]), Topology("pair", (Device("x"), Device("y")))
    >>> with temporary_folder() as folder:
    ...     save_placement(folder / "p.json", graph, pair, Placement(np.array([1, 0])), {"planner": "mine"})
    ...     written = json.loads((folder / "p.json").read_text())
    >>> written["assignment"], written["planner"]
    ({'a': 'y', 'b': 'x'}, 'mine')
    """
    priorities = None
    if placement.priorities is not None:
        priorities = dict(zip(graph.op_names, placement.priorities.tolist(), strict=True))
    document = {
        "format": _FORMAT,
        "model": {"name": graph.name, "sha256": None, "ops": graph.num_ops, **facts.get("model", {})},
        "devices": list(topology.device_names),
        "assignment": dict(zip(graph.op_names, [topology.device_names[d] for d in placement.assignment], strict=True)),
        "priorities": priorities,
        **{key: value for key, value in facts.items() if key != "model"},
    }
    write_text(path, json.dumps(document, indent=1) + "\n")


def listed_devices(path: Path) -> list[str]:
    """The devices that a placement file lists; none if it is broken, which `load_placement` reports.

    >>> listed_devices(Path("no such file"))
    []
    """
    with suppress(InvalidPlacement):
        document = read_json(path, InvalidPlacement)
        devices = document.get("devices") if isinstance(document, dict) else None
        return [name for name in devices if isinstance(name, str)] if isinstance(devices, list) else []
    return []


def load_placement(path: Path, graph: OpGraph, topology: Topology, sha256: str | None = None) -> Placement:
    """The placement in a file, for this graph on these devices.

    `sha256` is the hash of the model at hand; a file that states another one is refused.

    >>> from gnnplace.files import temporary_folder
    >>> from gnnplace.devices.topology import Device
    >>> from gnnplace.graph.op_graph import Op
    >>> graph, pair = OpGraph.build("g", [Op("a"), Op("b")]), Topology("pair", (Device("x"), Device("y")))
    >>> with temporary_folder() as folder:
    ...     save_placement(folder / "p.json", graph, pair, Placement(np.array([1, 0])), {"planner": "mine"})
    ...     json.loads((folder / "p.json").read_text())["assignment"]
    ...     load_placement(folder / "p.json", graph, pair).assignment.tolist()
    {'a': 'y', 'b': 'x'}
    [1, 0]

    Raises:
        InvalidPlacement: the file is broken, belongs to another model or to other devices, or is illegal.
    """
    document = read_json(path, InvalidPlacement)
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise InvalidPlacement(f'{path}: "format" is not {_FORMAT!r}; is this a placement file?')
    devices, assignment = document.get("devices"), document.get("assignment")
    if not isinstance(devices, list) or not isinstance(assignment, dict):
        raise InvalidPlacement(f"{path}: 'devices' (a list) and 'assignment' (an object) are required")
    model = document.get("model")
    stated = model.get("sha256") if isinstance(model, dict) else None
    if stated is not None and sha256 is not None and stated != sha256:
        raise InvalidPlacement(
            f"{path}: made for a model with sha256 {str(stated)[:12]}..., this one has {sha256[:12]}..."
        )
    for name in (*devices, *assignment.values()):
        if not isinstance(name, str) or name not in topology.device_index or name not in devices:
            raise InvalidPlacement(
                f"{path}: names the device {shown(name)}; the devices here are {', '.join(topology.device_names)}"
            )
    _same_ops(path, "assignment", assignment, graph)
    priorities = document.get("priorities")
    values = None
    if priorities is not None:
        if not isinstance(priorities, dict):
            raise InvalidPlacement(f"{path}: 'priorities' is no object and not null")
        _same_ops(path, "priorities", priorities, graph)
        for op, value in priorities.items():
            if not isinstance(value, (int, float)) or isinstance(value, bool):
                raise InvalidPlacement(f"{path}: the priority of op {op!r} is {shown(value)}; expected a number")
        values = np.array([priorities[name] for name in graph.op_names], dtype=np.float64)
    placement = Placement(np.array([topology.device_index[assignment[name]] for name in graph.op_names]), values)
    try:
        check_legal(graph, topology, placement)
    except InvalidPlacement as error:
        raise InvalidPlacement(f"{path}: {error}") from None
    return placement


def _same_ops(path: Path, key: str, entries: Mapping[str, Any], graph: OpGraph) -> None:
    for name in entries:
        if name not in graph.op_index:
            hint = did_you_mean(name[:_NAME], graph.op_names, "is it of another model?")
            raise InvalidPlacement(f"{path}: {key} names the op {name!r}, which {graph.name!r} does not have; {hint}")
    missing = next((name for name in graph.op_names if name not in entries), None)
    if missing is not None:
        raise InvalidPlacement(f"{path}: {key} lacks the op {missing!r}")

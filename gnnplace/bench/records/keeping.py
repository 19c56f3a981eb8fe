"""A placement that is better than its record becomes the record."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gnnplace.bench.records.cases import record_cases
from gnnplace.bench.records.searching import RecordSearch, setup_of_record
from gnnplace.errors import GnnplaceError
from gnnplace.files import read_json
from gnnplace.placement import Placement, check_legal, load_placement
from gnnplace.units import format_s
from models_zoo.networks.shipped import has_structure
from models_zoo.records.names import FOLDER, record_names
from models_zoo.records.record import (
    EQUAL,
    Found,
    Record,
    load_record,
    store_devices,
    store_graph,
    unpacked_placement,
    write_record,
)


def keep_found(search: RecordSearch, result: Mapping[str, Any], folder: Path = FOLDER) -> str:
    """Writes what a search found into its record, and the placement where it is better; gives the line of progress."""
    label = _label(search)
    who = f"{search.record}: {label}"
    if result.get("placement") is None:
        return f"{who}: {result['error']}"
    seconds, placement = result["makespan_s"], unpacked_placement(result)
    found = Found(search.planner, search.seconds, result["evaluations"], search.seed)
    bound = result["lower_bound_s"], result["lower_bound"]
    record, is_new = _with_placement(search.record, placement, seconds, found, bound, folder)
    results = {**record.results, label: min(seconds, record.results.get(label, np.inf))}
    write_record(dataclasses.replace(record, results=results))
    return f"{who}: {format_s(seconds)}" + (", the record" if is_new else "")


def is_kept(search: RecordSearch, folder: Path = FOLDER) -> bool:
    """Whether the record has the seconds of this search, or better ones of the same planner."""
    return search.record in record_names(folder) and _label(search) in load_record(search.record, folder).results


def _label(search: RecordSearch) -> str:
    return f"{search.planner} {search.seconds:g} s"


def keep_given(name: str, path: Path, folder: Path = FOLDER) -> Record:
    """The record with the placement in a `placement.json`.

    Raises:
        GnnplaceError: it is not better than the record, does not fit, or is no placement of this case.
    """
    setup = setup_of_record(name)
    graph, topology = setup.workload.graph, setup.topology
    placement = load_placement(path, graph, topology)
    check_legal(graph, topology, placement)
    evaluation = setup.simulator.evaluate(placement)
    if not evaluation.feasible:
        raise GnnplaceError(f"{path}: the placement does not fit into the memory of record:{name}")
    bound = setup.bound.value_s, setup.bound.name
    found = _given_by(path)
    record, is_new = _with_placement(name, placement, evaluation.makespan_s, found, bound, folder)
    if not is_new:
        raise GnnplaceError(
            f"{path}: takes {format_s(evaluation.makespan_s)}, the record {name} {format_s(record.makespan_s)}; it stays"
        )
    write_record(record)
    return record


def _given_by(path: Path) -> Found:
    """The planner and the seed that a placement file states; a file without a planner is named itself."""
    stated = read_json(path, GnnplaceError)
    planner, seed = stated.get("planner"), stated.get("seed")
    known_seed = seed if isinstance(seed, int) and not isinstance(seed, bool) else None
    return Found(planner, seed=known_seed) if isinstance(planner, str) and planner else Found(path.stem)


def _with_placement(
    name: str, placement: Placement, seconds: float, found: Found, bound: tuple[float, str], folder: Path
) -> tuple[Record, bool]:
    """The record of this name, with the placement where it is better, and whether it is."""
    if name not in record_names(folder):
        return _first(name, placement, seconds, found, bound, folder), True
    record = load_record(name, folder)
    if bound[0] > record.lower_bound_s:
        record = dataclasses.replace(record, lower_bound_s=bound[0], lower_bound=bound[1])
    if seconds >= record.makespan_s * (1.0 - EQUAL):
        return record, False
    return dataclasses.replace(record, placement=placement, makespan_s=seconds, found=found), True


def _first(
    name: str, placement: Placement, seconds: float, found: Found, bound: tuple[float, str], folder: Path
) -> Record:
    """A record of a case that had none, with the files of its graph and devices."""
    case = record_cases()[name]
    setup = case.build()
    graph, topology = setup.workload.graph, setup.topology
    if not has_structure(case.graph):
        store_graph(case.graph, graph, folder)
    store_devices(case.devices, topology, folder)
    return Record(
        name, case.graph, case.devices, case.max_groups, case.type_spread, case.type_seed,
        graph.num_ops, topology.num_devices, *bound, seconds, placement, found, {}, folder,
    )  # fmt: skip

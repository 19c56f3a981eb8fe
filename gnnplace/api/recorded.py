"""Records as workloads: `record:NAME` names a graph, its devices and its costs at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gnnplace.api.options import PlaceOptions
from gnnplace.api.problem_setup import ProblemSetup
from gnnplace.api.workload import ModelSource, Workload
from gnnplace.cost.cost_model import PerTypeCost, RooflineCost
from gnnplace.errors import GnnplaceError

if TYPE_CHECKING:
    from models_zoo.records.record import Record

_PREFIX = "record:"


def setup_of_record(model: ModelSource, devices: object, options: PlaceOptions) -> ProblemSetup | None:
    """The set-up of `record:NAME`; None for any other model.

    Raises:
        GnnplaceError: devices are given for a record or missing for another model, or as `recorded_setup`.
    """
    is_record = isinstance(model, str) and model.startswith(_PREFIX)
    if is_record and devices is not None:
        raise GnnplaceError(f"{model}: a record has devices of its own; leave out the devices ({devices})")
    if not is_record and devices is None:
        name = model if isinstance(model, str | Path) else Workload.of(model).name
        raise GnnplaceError(f"{name}: the devices are missing; name them, such as k40x4, cpu:0,cpu:1 or auto")
    return recorded_setup(str(model).removeprefix(_PREFIX), options) if is_record else None


def recorded_setup(record: str | Record, options: PlaceOptions = PlaceOptions()) -> ProblemSetup:
    """The graph of a record on its devices, with its costs and, unless the options state another, its number of op groups.

    Raises:
        GnnplaceError: there is no such record, or the options ask for measured runs or other shapes of inputs.
    """
    from models_zoo.records.record import load_record

    found = load_record(record) if isinstance(record, str) else record
    if options.measure or options.dims or options.inputs is not None:
        raise GnnplaceError(
            f"record:{found.name} is an op graph with simulated costs; leave out measured runs, inputs and sizes of dimensions"
        )
    workload, topology = Workload.of(found.read_graph()), found.read_devices()
    cost = PerTypeCost(RooflineCost(), found.type_seed, found.type_spread)
    chosen = replace(options, max_groups=options.max_groups or found.max_groups)
    return ProblemSetup.build(workload, topology, cost, chosen)

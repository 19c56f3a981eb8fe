"""`profile`: every op of a model and every link, measured on real devices."""

from pathlib import Path
from typing import Any, Unpack

from gnnplace.api.measuring import profiled_anew
from gnnplace.api.options import Keywords, PlaceOptions, with_keyword_signature, with_keywords
from gnnplace.api.pipeline import Devices
from gnnplace.api.problem_setup import topology_of
from gnnplace.api.workload import ModelSource, load_workload
from gnnplace.cost.measured import write_costs
from gnnplace.measuring.busy import check_free


@with_keyword_signature
def profile(
    model: ModelSource,
    devices: Devices,
    out: str | Path | None = None,
    options: PlaceOptions | None = None,
    **keywords: Unpack[Keywords],
) -> dict[str, Any]:
    """Measures every op of a model on real devices and every link: the object that `gnnplace profile --json` prints.

    Later searches on this machine use the measurements. The file `out` receives all known costs of these kinds of devices. Of
    the options, `dims`, `inputs`, `custom_ops`, `seed`, `force` and `on_warning` count.

    >>> costs = profile("model.onnx", "cpu:0,cpu:1", out="costs.json")  # doctest: +SKIP

    Raises:
        UnsupportedModel: the model cannot be read, or is an op graph.
        InvalidTopology: a device is not on this machine.
        MeasurementFailed: the model does not run on a device, or other work keeps a device busy.
    """
    options = with_keywords(options, keywords)
    topology = topology_of(devices)
    workload = load_workload(model, options.dims, custom_ops=options.custom_ops, inputs=options.inputs, to_run=True)
    workload.check_executable()  # before anything is measured
    for warning in (*workload.warnings, *check_free(topology.device_names, options.force)):
        options.on_warning(warning)
    for other in workload.models[1:]:
        profiled_anew(other, topology, options.seed, pairs=())
    costs, fits = profiled_anew(workload.models[0], topology, options.seed)
    known = costs.of_devices(topology.devices)
    if out is not None:
        write_costs(known, Path(out))
    kinds = {
        kind: {
            "ops": len(known.kinds[kind].op_s),
            "dispatch_overhead_s": known.kinds[kind].dispatch_overhead_s,
            "roofline_relative_error": fit.relative_error,
        }
        for kind, fit in fits.items()
    }
    return {"out": None if out is None else str(out), "kinds": kinds}

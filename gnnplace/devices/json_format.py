"""The topology file, `gnnplace.topology/1`."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import NoneType
from typing import Any, get_type_hints

from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.errors import InvalidTopology, did_you_mean, shown
from gnnplace.files import read_json
from gnnplace.json_fields import checked_format

FORMAT = "gnnplace.topology/1"

_NUMBER = (int, float)
# Types in a file for each type of a field.
_TYPES: Mapping[Any, tuple[type, ...]] = {
    str: (str,), str | None: (str, NoneType), int: (int,), int | None: (int, NoneType),
    float: _NUMBER, float | None: (*_NUMBER, NoneType), Mapping[str, float]: (dict,), tuple[str, ...]: (list,),
}  # fmt: skip
_KEYS = {kind: {key: _TYPES[hint] for key, hint in get_type_hints(kind).items()} for kind in (Device, Link)}
_TOP_KEYS = ("format", "devices", "links", "presets")
"""`gnnplace devices --json` writes the presets beside a set. A file may have other keys that are not close to these, such as notes."""
_LEFT_OUT = ("segment_overhead_s", "intake_bandwidth_bytes_per_s", "resources", "memory_pool")
"""Keys of a device that a file has only where they say something."""
_REQUIRED = {Device: ("name",), Link: ("source", "target", "latency_s", "bandwidth_bytes_per_s")}


def read_topology(path: Path) -> Topology:
    """The topology in a file, with the file's name.

    Raises:
        InvalidTopology: the file is missing, is not JSON, or breaks a rule of the format.
    """
    return topology_from_json(read_json(path, InvalidTopology), str(path), path.stem)


def topology_from_json(document: Any, where: str = "topology", name: str = "topology") -> Topology:
    """The topology of a parsed `gnnplace.topology/1` document; errors begin with `where`.

    A device requires only a name: absent memory is unlimited, an absent kind is the name. Unknown keys of devices and
    links are errors, since a misspelt capacity would otherwise mean unlimited memory.
    """
    rows = checked_format(document, FORMAT, where, InvalidTopology)
    for key in document.keys() - set(_TOP_KEYS):
        if hint := did_you_mean(key, _TOP_KEYS):
            raise InvalidTopology(f"{where}: the file has the unknown key {key!r}; {hint}")
    devices = [_checked(row.fields, Device, where) for row in rows.objects("devices")]
    links = [_checked(row.fields, Link, where) for row in rows.objects("links")]
    try:
        return Topology(name, tuple(Device(**row) for row in devices), tuple(Link(**row) for row in links))
    except InvalidTopology as error:
        raise InvalidTopology(f"{where}: {error}") from None


def topology_to_json(topology: Topology) -> dict[str, Any]:
    """The `gnnplace.topology/1` document of a topology; costs of a segment, resources and pools are left out where there are none."""
    rows = (asdict(device) for device in topology.devices)
    return {
        "format": FORMAT,
        "devices": [{key: value for key, value in row.items() if value or key not in _LEFT_OUT} for row in rows],
        "links": [asdict(link) for link in topology.links],
    }


def _checked(row: Mapping[str, Any], kind: type[Device] | type[Link], where: str) -> dict[str, Any]:
    """The row with all seconds and rates as floats, after a check of its keys and the types of its values."""
    keys = _KEYS[kind]
    ends = f"{row.get('source')} -> {row.get('target')}" if kind is Link else row.get("name")
    label = f"{kind.__name__.lower()} {shown(ends)}"
    for key in _REQUIRED[kind]:
        if key not in row:
            raise InvalidTopology(f"{where}: {label} has no {key!r}, which is required")
    for key, value in row.items():
        if key not in keys:
            hint = did_you_mean(key, keys, f"known are {', '.join(keys)}")
            raise InvalidTopology(f"{where}: {label} has the unknown key {key!r}; {hint}")
        if not _has_type(value, keys[key]):
            expected = " or ".join("null" if each is NoneType else each.__name__ for each in keys[key])
            raise InvalidTopology(f"{where}: {key!r} of {label} is {shown(value)}; expected {expected}")
    for resource in row.get("resources", []):
        if not isinstance(resource, str) or not resource:
            raise InvalidTopology(f"{where}: 'resources' of {label} has {shown(resource)}; expected names")
    for dtype, rate in row.get("peak_flops_per_s", {}).items():
        if not _has_type(rate, _NUMBER):
            raise InvalidTopology(
                f"{where}: peak_flops_per_s[{dtype!r}] of {label} is {shown(rate)}; expected a number"
            )
    return {key: _as_float(value) if key.endswith("_s") else value for key, value in row.items()}


def _as_float(value: Any) -> Any:
    """The number, or each number of an object, as a float; None stays None."""
    if isinstance(value, dict):
        return {key: _as_float(number) for key, number in value.items()}
    try:
        return None if value is None else float(value)
    except OverflowError:
        return math.inf  # refused where the object validates


def _has_type(value: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)

"""List schedules on devices that are near each other, such as those of one server."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice, pairwise, product

import networkx as nx
import numpy as np

from gnnplace.arrays import BoolArray, IntArray
from gnnplace.devices.topology import Topology
from gnnplace.evaluation import Problem
from gnnplace.planners.classical.heft_portfolio import held_shares, plain_options
from gnnplace.planners.classical.list_schedule import list_schedule

_FARTHER = 1.25  # a device farther away than this many times the distance between others is not near them
_MOST = 8  # neighbourhoods of a device set
_Kinds = tuple[tuple[str, int], ...]


def neighbourhood_schedules(problem: Problem, builds: int) -> Iterator[IntArray]:
    """Up to `builds` list schedules `[N]` on each of the `neighbourhoods`.

    A list scheduler decides op by op, so it leaves a server whenever another one is free earlier, and that slows what follows.
    """
    num_bytes = problem.graph.tensor_bytes
    near = neighbourhoods(problem.topology, float(num_bytes.mean()) if len(num_bytes) else 0.0)
    options = islice(plain_options(held_shares(problem)[::2]), builds)
    for option, devices in product(options, near):
        mask = np.broadcast_to(devices, problem.action_mask.shape)
        yield list_schedule(problem, replace(option, mask=mask)).assignment


def neighbourhoods(topology: Topology, num_bytes: float) -> list[BoolArray]:
    """Sets of near devices as masks `[D]`, the nearest first: more than one, not all, and at most `_MOST`.

    Devices are near if a chain of transfers of `num_bytes` bytes leads from one to the other, each of which takes less time than any to a
    device outside (single linkage). Of such sets with equal devices, the first 1, 2, 4 ... and all together are neighbourhoods, and so are
    equal devices in such a set. Where all devices are at one distance, there is none.
    """
    levels = list(_levels(topology, num_bytes))
    if len(levels[0]) == 1:
        return []
    everything = frozenset(range(topology.num_devices))
    alone = [frozenset([at]) for at in sorted(everything)]
    found = dict[_Kinds, frozenset[int]]()
    for inner, outer in pairwise([alone, *levels, [everything]]):
        for around in outer:
            for members in _unions(topology, [each for each in inner if each <= around]):
                if 1 < len(members) < len(everything):
                    found.setdefault(_kinds(topology, members), members)
    return [np.isin(np.arange(len(everything)), list(members)) for members in found.values()][:_MOST]


def _unions(topology: Topology, sets: Iterable[frozenset[int]]) -> Iterator[frozenset[int]]:
    """Of the sets with equal devices, the first 1, 2, 4 ... and all together."""
    equal = defaultdict[_Kinds, list[frozenset[int]]](list)
    for members in sets:
        equal[_kinds(topology, members)].append(members)
    for alike in equal.values():
        for count in sorted({min(2**power, len(alike)) for power in range(len(alike).bit_length() + 1)}):
            yield frozenset[int]().union(*alike[:count])


def _levels(topology: Topology, num_bytes: float) -> Iterator[list[frozenset[int]]]:
    """Partitions of the devices into near ones, joined over longer and longer transfers."""
    joined, seconds = nx.utils.UnionFind(range(topology.num_devices)), topology.transfer_s(num_bytes)
    distance = nx.Graph()
    distance.add_weighted_edges_from(
        (a, b, max(seconds[a, b], seconds[b, a]))
        for a, b in zip(*np.nonzero(np.triu(topology.exchanges, 1)), strict=True)
    )
    tree = sorted(nx.minimum_spanning_edges(distance), key=lambda edge: edge[2]["weight"])
    longest_s = np.inf
    for a, b, at in tree:
        if at["weight"] > _FARTHER * longest_s:
            yield sorted(map(frozenset, joined.to_sets()), key=min)
        longest_s = at["weight"]
        joined.union(a, b)
    yield sorted(map(frozenset, joined.to_sets()), key=min)


def _kinds(topology: Topology, members: Iterable[int]) -> _Kinds:
    """Kinds and memories of some devices; equal ones compute equally."""
    return tuple(sorted((topology.devices[at].kind, int(topology.memory_bytes[at])) for at in members))

"""The Mt-KaHyPar library, run in an isolated process: release 1.7 now and then crashes or hangs on vertices that hardly fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Hypergraph(NamedTuple):
    """Vertices, nets and the parts to cut them into; weights are integers."""

    vertex_weights: list[int]
    limits: list[int]
    """Greatest weight of each part."""
    nets: list[list[int]]
    """Vertices of each net."""
    net_weights: list[int]


def partitioner() -> Callable[[Hypergraph], list[int]]:
    """A function that returns the part of each vertex, once it has proved that the library works.

    Objective km1, deterministic preset, one thread.
    """
    import mtkahypar

    threads = mtkahypar.initialize(1, False)

    def partition(graph: Hypergraph) -> list[int]:
        context = threads.context_from_preset(mtkahypar.PresetType.DETERMINISTIC)
        context.logging = False
        context.set_partitioning_parameters(len(graph.limits), 0.0, mtkahypar.Objective.KM1)
        vertices, nets = graph.vertex_weights, graph.nets
        hypergraph = threads.create_hypergraph(context, len(vertices), len(nets), nets, vertices, graph.net_weights)
        context.set_individual_target_block_weights(graph.limits)
        return [int(part) for part in hypergraph.partition(context).get_partition()]

    partition(Hypergraph([1, 1, 1, 1], [3, 3], [[0, 1], [1, 2], [2, 3]], [1, 1, 1]))
    return partition

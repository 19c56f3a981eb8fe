"""A problem that can be checked by hand, for the examples in docstrings."""

import numpy as np

from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.evaluation import Problem
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.sim.simulator import Simulator


def diamond() -> Problem:
    """Ops `read`, `left`, `right` and `join` of 1, 2, 2 and 1 seconds, and two equal devices one millisecond apart.

    `left` and `right` read from `read`; `join` reads from both. One device takes 6 seconds; with the branches side by side,
    the step takes 4 seconds and a transfer.

    >>> from gnnplace.placement import Placement
    >>> alone, side_by_side = Placement(np.array([0, 0, 0, 0])), Placement(np.array([0, 0, 1, 1]))
    >>> [round(diamond().evaluator.evaluate(placement).makespan_s, 3) for placement in (alone, side_by_side)]
    [6.0, 4.001]
    """
    tensors = [Tensor("read", 8, ("left", "right")), Tensor("left", 8, ("join",)), Tensor("right", 8, ("join",))]
    graph = OpGraph.build("diamond", [Op("read"), Op("left"), Op("right"), Op("join")], tensors)
    links = (Link("x", "y", 1e-3, 1e9), Link("y", "x", 1e-3, 1e9))
    topology = Topology("two", (Device("x", dispatch_overhead_s=0.0), Device("y", dispatch_overhead_s=0.0)), links)
    simulator = Simulator(graph, topology, np.array([[1.0, 1.0], [2.0, 2.0], [2.0, 2.0], [1.0, 1.0]]))
    return Problem(graph, topology, simulator.op_time_s, simulator, simulator)

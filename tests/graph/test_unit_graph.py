"""Neighbours of units, and random connected sets of them."""

import numpy as np

from gnnplace.graph.units import first_above, grow_cluster
from gnnplace.sim.example import diamond


def test_the_first_entry_above_a_value_is_found() -> None:
    assert [first_above(np.array([1.0, 3.0, 6.0]), value) for value in (0.5, 1.0, 6.0)] == [0, 1, 2]


def test_a_large_cluster_is_all_that_is_connected_on_the_device() -> None:
    scratch, devices = np.zeros((3, 4), dtype=np.int64), np.array([0, 0, 0, 1])
    count = grow_cluster(diamond().unit_graph, 100.0, devices, np.random.default_rng(0), scratch)
    assert sorted(scratch[0, :count].tolist()) == [0, 1, 2]

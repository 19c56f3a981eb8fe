"""MinCut with METIS: devices share the computation evenly, and few bytes cross between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnplace.arrays import IntArray
from gnnplace.errors import MissingDependency
from gnnplace.evaluation import Problem
from gnnplace.placement import Placement
from gnnplace.planners.budget import Budget
from gnnplace.planners.classical.partition_graph import parts_of, undirected_graph, whole_numbers
from gnnplace.planners.search import Search, Solution

__all__ = ["MetisConfig", "metis_assignment", "plan", "plan_with_hosts"]


@dataclass(frozen=True)
class MetisConfig:
    """Hyper-parameters of Karypis and Kumar 1998, as METIS 5 implements it."""

    max_bisected_parts: int = 8
    """Most parts that recursive bisection cuts; more are cut k-way. This is the default of pymetis."""
    bisection_imbalance: float = 0.001
    """Share that a part may have beyond its due at each bisection; METIS manual, section 5.4, `ufactor` 1."""
    k_way_imbalance: float = 0.03
    """The same for a k-way cut, all parts at once: `ufactor` 30."""


def plan(problem: Problem, budget: Budget, seed: int) -> Solution:
    """The one placement of a balanced minimum cut over the accelerators.

    The baseline "MinCut" of Mirhoseini et al. (2017), section 4.2: a partitioner that knows computation and data but
    not time, without the hosts. An op that no accelerator can run goes to a host. As there, memory is ignored: a
    placement that does not fit is returned as it is. Departures: METIS's multilevel bisection (Karypis and Kumar 1998;
    k-way from nine parts on) with METIS's default imbalance in place of Scotch's, and faster accelerators get more.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    return _plan("metis", problem, budget, seed, hosts=False)


def plan_with_hosts(problem: Problem, budget: Budget, seed: int) -> Solution:
    """As `plan`, but hosts take part too; each device gets as much of the computation as its share of all speeds.

    This is the input of the baseline "Scotch" of Mirhoseini et al. (2017), section 4.2, without its link costs.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan_with_hosts(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    return _plan("metis-cpu", problem, budget, seed, hosts=True)


def _plan(name: str, problem: Problem, budget: Budget, seed: int, *, hosts: bool) -> Solution:
    with Search(problem, budget, name, seed) as search:
        search.evaluate(Placement(metis_assignment(problem, seed, hosts=hosts, config=MetisConfig())))
    return search.solution()


def metis_assignment(problem: Problem, seed: int, *, hosts: bool, config: MetisConfig) -> IntArray:
    """`[N]`: vertices weigh seconds (mean over the devices that take part), edges bytes, parts the devices' speeds.

    Raises:
        MissingDependency: pymetis is not installed.
    """
    try:
        import pymetis
    except ImportError as error:
        raise MissingDependency(
            "the planners 'metis' and 'metis-cpu' need pymetis; pip install 'gnnplace[partition]'"
        ) from error
    parts = parts_of(problem, hosts)
    if len(parts.devices) == 1:
        return parts.assignment(problem, np.zeros(problem.num_units, dtype=np.int64))
    graph = undirected_graph(problem)
    bisected = len(parts.devices) <= config.max_bisected_parts
    imbalance = config.bisection_imbalance if bisected else config.k_way_imbalance
    dtype = pymetis.zero_copy_dtype()
    _, part = pymetis.part_graph(
        len(parts.devices),
        adjacency=pymetis.CSRAdjacency(graph.offsets.astype(dtype), graph.neighbours.astype(dtype)),
        vweights=whole_numbers(parts.mean_s).astype(dtype),
        eweights=whole_numbers(graph.edge_bytes, least=1).astype(dtype),
        tpwgts=parts.speed.tolist(),
        recursive=bisected,
        options=pymetis.Options(seed=seed % 2**31, ufactor=round(1000 * imbalance)),
    )
    return parts.assignment(problem, np.array(part, dtype=np.int64))

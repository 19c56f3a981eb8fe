"""MinCut with METIS: devices share the computation evenly, and few bytes cross between them."""

import numpy as np

from gnnplace.arrays import IntArray
from gnnplace.errors import MissingDependency
from gnnplace.evaluation import Problem
from gnnplace.placement import Placement
from gnnplace.planners.classical.partition_graph import parts_of, undirected_graph, whole_numbers
from gnnplace.planners.search import Search
from gnnplace.planners.solution import Budget, Solution

_MAX_BISECTED_PARTS = 8  # as in pymetis, recursive bisection cuts up to this number of parts, and more are cut k-way
# Thousandths that a part may have beyond its share: METIS's defaults (manual, section 5.4).
_BISECTION_UFACTOR, _K_WAY_UFACTOR = 1, 30


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
    with Search(problem, budget, "metis", seed) as search:
        search.evaluate(Placement(metis_assignment(problem, seed, hosts=False)))
    return search.solution()


def plan_with_hosts(problem: Problem, budget: Budget, seed: int) -> Solution:
    """As `plan`, but hosts take part too; each device gets as much of the computation as its share of all speeds.

    This is the input of the baseline "Scotch" of Mirhoseini et al. (2017), section 4.2, without its link costs.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan_with_hosts(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    with Search(problem, budget, "metis-cpu", seed) as search:
        search.evaluate(Placement(metis_assignment(problem, seed, hosts=True)))
    return search.solution()


def metis_assignment(problem: Problem, seed: int, *, hosts: bool) -> IntArray:
    """`[N]` devices of METIS's cut.

    Vertices weigh seconds (mean over the devices that take part), edges bytes, and parts the devices' speeds.

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
    bisected = len(parts.devices) <= _MAX_BISECTED_PARTS
    dtype = pymetis.zero_copy_dtype()
    _, part = pymetis.part_graph(
        len(parts.devices),
        adjacency=pymetis.CSRAdjacency(graph.indptr.astype(dtype), graph.indices.astype(dtype)),
        vweights=whole_numbers(parts.mean_s).astype(dtype),
        eweights=whole_numbers(graph.data, least=1).astype(dtype),
        tpwgts=parts.speed.tolist(),
        recursive=bisected,
        options=pymetis.Options(seed=seed % 2**31, ufactor=_BISECTION_UFACTOR if bisected else _K_WAY_UFACTOR),
    )
    return parts.assignment(problem, np.array(part, dtype=np.int64))

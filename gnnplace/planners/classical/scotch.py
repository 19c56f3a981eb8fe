"""Scotch: the op graph mapped onto the graph of devices, whose links have costs."""

import shutil
import subprocess
from itertools import pairwise

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.sparse import csr_array
from scipy.spatial.distance import squareform

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.devices.topology import Topology
from gnnplace.errors import GnnplaceError, MissingDependency
from gnnplace.evaluation import Problem
from gnnplace.files import temporary_folder
from gnnplace.placement import Placement
from gnnplace.planners.classical.partition_graph import parts_of, undirected_graph, whole_numbers
from gnnplace.planners.search import BudgetExhausted, Search
from gnnplace.planners.solution import Budget, Solution

_PROGRAM = "scotch_gmap"
_IMBALANCE = 0.05  # share that a device may have beyond its due: the default of `gmap -b`
# Scotch's distances are integers of at least 1, and sums of bytes times distances must not overflow.
_NEAREST, _FARTHEST = 8, 128


def plan(problem: Problem, budget: Budget, seed: int) -> Solution:
    """The one placement of Scotch's static mapping over all devices, hosts among them.

    The baseline "Scotch" of Mirhoseini et al. (2017), section 4.2: dual recursive bipartitioning (Pellegrini and Roman
    1996) with the computation of ops, the bytes between them, and the devices' compute and communication capacities. As there, memory is ignored:
    a placement that does not fit is returned as it is. An op that may not run where Scotch mapped it goes to the
    fastest device that may run it. Scotch uses its own fixed seed; `seed` has no effect.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)  # doctest: +SKIP
    4.001
    """
    with Search(problem, budget, "scotch", seed) as search:
        left_s = None if budget.seconds is None else budget.seconds - search.wall_s
        search.evaluate(Placement(scotch_assignment(problem, left_s)))
    return search.solution()


def scotch_assignment(problem: Problem, timeout_s: float | None = None) -> IntArray:
    """`[N]` devices of Scotch's mapping.

    Vertices weigh seconds (mean over the devices), edges bytes; devices have speeds and distances.

    Raises:
        BudgetExhausted: `timeout_s` passed.
        MissingDependency: Scotch is not installed.
        GnnplaceError: Scotch refused the graph.
    """
    program = shutil.which(_PROGRAM)
    if program is None:
        raise MissingDependency(
            f"the planner 'scotch' needs the program {_PROGRAM}; install Debian's scotch (apt install scotch)"
        )
    parts = parts_of(problem, hosts=True)
    if len(parts.devices) == 1:
        return parts.assignment(problem, np.zeros(problem.num_units, dtype=np.int64))
    mean_bytes = float(problem.graph.tensor_bytes.mean()) if problem.graph.num_tensors else 0.0
    source = source_text(undirected_graph(problem), parts.mean_s)
    target = target_text(parts.speed, link_distances(problem.topology, parts.devices, mean_bytes))
    with temporary_folder() as folder:
        files = [folder / name for name in ("ops.grf", "devices.tgt", "ops.map")]
        files[0].write_text(source, "ascii")
        files[1].write_text(target, "ascii")
        # `-Cd`: the same answer every time, on any number of threads.
        command = [program, *map(str, files), "-Cd", f"-b{_IMBALANCE}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise BudgetExhausted from error
        if done.returncode != 0 or not files[2].exists():
            raise GnnplaceError(
                f"{_PROGRAM} ended with status {done.returncode}: {(done.stderr or done.stdout).strip()}"
            )
        rows = np.array(files[2].read_text("ascii").split(), dtype=np.int64)[1:].reshape(-1, 2)
    part = np.empty(problem.num_units, dtype=np.int64)
    part[rows[:, 0]] = rows[:, 1]
    return parts.assignment(problem, part)


def source_text(graph: csr_array, seconds: FloatArray) -> str:
    """Scotch's source graph (user's guide, section 5.1): weights on edges and vertices, numbered from 0, no labels.

    A row is the vertex's weight, its degree, then the weight and the other end of each edge.
    """
    weights = whole_numbers(seconds)
    edges = np.stack([whole_numbers(graph.data, total=1 << 22, least=1), graph.indices], axis=1)
    rows = [
        " ".join(map(str, (weight, end - begin, *edges[begin:end].ravel().tolist())))
        for weight, (begin, end) in zip(weights.tolist(), pairwise(graph.indptr.tolist()), strict=True)
    ]
    return "\n".join(["0", f"{len(rows)} {len(edges)}", "0 011", *rows]) + "\n"


def target_text(speed: FloatArray, distances: IntArray) -> str:
    """Scotch's decomposition-defined architecture (user's guide, section 5.4): `deco 0`.

    One row per device: its label, its speed, and its place in the binary tree by which Scotch bisects (the root is 1,
    the halves of `n` are `2 n` and `2 n + 1`). Then the distances below the diagonal. Near devices stay together in the
    halves. With equal distances this is the weighted complete graph.
    """
    places = _tree_places(leaves_list(linkage(squareform(distances), "average")).tolist())
    weights = np.maximum(1, np.rint(1000 * speed / speed.max())).astype(np.int64).tolist()
    rows = [f"{device} {weight} {places[device]}" for device, weight in enumerate(weights)]
    below = [" ".join(map(str, distances[device, :device].tolist())) for device in range(1, len(rows))]
    return "\n".join(["deco 0", f"{len(rows)} {max(places.values())}", *rows, *below]) + "\n"


def link_distances(topology: Topology, devices: IntArray, num_bytes: float) -> IntArray:
    """`[P, P]` seconds of a transfer, averaged over both directions, as integers: 8 for the nearest pair.

    The distance is at most sixteen times that of the nearest pair, also for a pair without a route.
    """
    seconds = topology.transfer_s(num_bytes)[np.ix_(devices, devices)]
    mean = (seconds + seconds.T) / 2
    nearest = mean[~np.eye(len(devices), dtype=np.bool_)].min()
    ratio = np.divide(mean, nearest, out=np.where(mean > 0, np.inf, 1.0), where=np.isfinite(mean) & (nearest > 0))
    distances: IntArray = np.clip(np.rint(_NEAREST * ratio), 1, _FARTHEST).astype(np.int64)
    np.fill_diagonal(distances, 0)
    return distances


def _tree_places(devices: list[int], root: int = 1) -> dict[int, int]:
    """Each device's place in a binary tree over `devices`, which is halved again and again."""
    if len(devices) == 1:
        return {devices[0]: root}
    half = (len(devices) + 1) // 2
    return _tree_places(devices[:half], 2 * root) | _tree_places(devices[half:], 2 * root + 1)

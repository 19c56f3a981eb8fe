"""The planners by name: a new one is one file and one line here."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from gnnplace.errors import GnnplaceError, did_you_mean

if TYPE_CHECKING:
    from gnnplace.planners.search import Planner

__all__ = ["PLANNERS", "PlannerEntry", "load_planner"]


@dataclass(frozen=True)
class PlannerEntry:
    """Where a planner is and what it does.

    >>> PLANNERS["heft"].description, PLANNERS["heft"].kind
    ('HEFT with insertion (Topcuoglu et al. 2002)', 'heuristic')
    """

    module: str
    """Has a function `plan(problem, budget, seed) -> Solution`."""
    description: str
    kind: Literal["heuristic", "learned"]
    takes_all_ops: bool = False
    """Near linear in ops, and better for seeing all of them: large graphs come to it op by op, not in groups."""


_CLASSICAL = "gnnplace.planners.classical"
_PAPERS = "gnnplace.planners.papers"

PLANNERS: Mapping[str, PlannerEntry] = {
    "single": PlannerEntry(
        f"{_CLASSICAL}.single", "everything on the best single device", "heuristic", takes_all_ops=True
    ),
    "round-robin": PlannerEntry(
        f"{_CLASSICAL}.round_robin", "devices in turn, in topological order", "heuristic", takes_all_ops=True
    ),
    "expert": PlannerEntry(
        f"{_CLASSICAL}.expert", "whole layers in order, with equal loads", "heuristic", takes_all_ops=True
    ),
    "scotch": PlannerEntry(
        f"{_CLASSICAL}.scotch", "Scotch maps ops onto all devices by compute and bytes, blind to memory", "heuristic"
    ),
    "metis": PlannerEntry(f"{_CLASSICAL}.metis", "MinCut: METIS cuts for equal compute on accelerators", "heuristic"),
    "metis-cpu": PlannerEntry(f"{_CLASSICAL}.metis_cpu", "the same with hosts, all by their speeds", "heuristic"),
    "mtkahypar": PlannerEntry(
        f"{_CLASSICAL}.mtkahypar", "hypergraph partitions that fit into the memories, many of them", "heuristic"
    ),
    "heft": PlannerEntry(
        f"{_CLASSICAL}.heft", "HEFT with insertion (Topcuoglu et al. 2002)", "heuristic", takes_all_ops=True
    ),
    "peft": PlannerEntry(
        f"{_CLASSICAL}.peft",
        "PEFT: earliest finish with an optimistic cost table (Arabnejad and Barbosa 2014)",
        "heuristic",
        takes_all_ops=True,
    ),
    "heft-portfolio": PlannerEntry(
        f"{_CLASSICAL}.heft_portfolio",
        "HEFT's schedules under varied transfer costs, the best of many",
        "heuristic",
        takes_all_ops=True,
    ),
    "m-etf": PlannerEntry(
        f"{_CLASSICAL}.etf", "earliest task first with memory (Baechi, Jeon et al. 2020)", "heuristic"
    ),
    "m-sct": PlannerEntry(
        f"{_CLASSICAL}.sct", "small communication times with memory (Baechi, Jeon et al. 2020)", "heuristic"
    ),
    "segments": PlannerEntry(
        f"{_CLASSICAL}.segments", "dynamic programming over cuts of random topological orders", "heuristic"
    ),
    "greedy": PlannerEntry(
        f"{_CLASSICAL}.greedy", "the best single move of each op in turn, until none helps", "heuristic"
    ),
    "annealing": PlannerEntry(
        f"{_CLASSICAL}.annealing", "simulated annealing with moves of ops and of clusters", "heuristic"
    ),
    "genetic": PlannerEntry(
        f"{_CLASSICAL}.genetic", "biased random-key genetic algorithm, as REGAL's without learning", "heuristic"
    ),
    "optimal": PlannerEntry(
        f"{_CLASSICAL}.optimal.planner",
        "CP-SAT on the whole schedule: proves small graphs, bounds larger ones",
        "heuristic",
    ),
    "coloc-rl": PlannerEntry(
        "gnnplace.planners.papers.coloc_rl", "REINFORCE on a sequence model (Mirhoseini et al. 2017)", "learned"
    ),
    "spotlight": PlannerEntry(
        "gnnplace.planners.papers.spotlight", "PPO on the same sequence model (Gao et al. 2018)", "learned"
    ),
    "hierarchical": PlannerEntry(
        f"{_PAPERS}.hierarchical.planner",
        "a grouper and a placer that learn together (Mirhoseini et al. 2018)",
        "learned",
    ),
    "hierarchical-no-grouping": PlannerEntry(
        f"{_PAPERS}.hierarchical.no_grouping", "its ablation that places every op on its own", "learned"
    ),
    "hierarchical-random-grouping": PlannerEntry(
        f"{_PAPERS}.hierarchical.random_grouping", "its ablation with random groups", "learned"
    ),
    "placeto": PlannerEntry(
        f"{_PAPERS}.placeto.planner",
        "a graph network that moves op groups one by one (Addanki et al. 2019)",
        "learned",
    ),
    "gnn": PlannerEntry(
        "gnnplace.planners.gnn.planner",
        "a graph neural network that revisits ops and moves them",
        "learned",
        takes_all_ops=True,
    ),
}


def load_planner(name: str) -> Planner:
    """The planner of this name; only then is its module imported.

    >>> load_planner("heft").__module__
    'gnnplace.planners.classical.heft'

    Raises:
        GnnplaceError: no planner has this name.
    """
    if name not in PLANNERS:
        hint = did_you_mean(name, PLANNERS, f"known are {', '.join(PLANNERS)}")
        raise GnnplaceError(f"there is no planner {name!r}; {hint} `gnnplace planners` says what each does")
    return cast("Planner", importlib.import_module(PLANNERS[name].module).plan)

"""The planners by name. A new planner is one file and one line here."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from gnnplace.errors import GnnplaceError, did_you_mean, shown

if TYPE_CHECKING:
    from gnnplace.planners.solution import Planner


@dataclass(frozen=True)
class PlannerEntry:
    """The place of a planner and a description of it.

    >>> PLANNERS["heft"].description, PLANNERS["heft"].kind
    ('HEFT with insertion (Topcuoglu et al. 2002)', 'heuristic')
    """

    module: str
    """Module below `gnnplace.planners`."""
    description: str
    function: str = "plan"
    """Name of the function `(problem, budget, seed) -> Solution` in the module."""
    takes_all_ops: bool = False
    """True for planners of nearly linear time, which place large graphs op by op and find shorter steps than with groups."""

    @property
    def kind(self) -> Literal["heuristic", "learned"]:
        """Whether the planner learns; every planner outside `classical/` does."""
        return "heuristic" if self.module.startswith("classical.") else "learned"


PLANNERS: Mapping[str, PlannerEntry] = {
    "single": PlannerEntry("classical.baselines", "everything on the best single device", "plan_single", True),
    "round-robin": PlannerEntry(
        "classical.baselines", "devices in turn, in topological order", "plan_round_robin", True
    ),
    "expert": PlannerEntry("classical.expert", "whole layers in order, with equal loads", takes_all_ops=True),
    "scotch": PlannerEntry(
        "classical.scotch", "Scotch maps ops onto all devices by compute and bytes, blind to memory"
    ),
    "metis": PlannerEntry("classical.metis", "MinCut: METIS cuts for equal compute on accelerators"),
    "metis-cpu": PlannerEntry("classical.metis", "the same with hosts, all by their speeds", "plan_with_hosts"),
    "mtkahypar": PlannerEntry("classical.mtkahypar", "hypergraph partitions that fit into the memories, many of them"),
    "heft": PlannerEntry("classical.heft", "HEFT with insertion (Topcuoglu et al. 2002)", takes_all_ops=True),
    "peft": PlannerEntry(
        "classical.peft",
        "PEFT: earliest finish with an optimistic cost table (Arabnejad and Barbosa 2014)",
        takes_all_ops=True,
    ),
    "heft-portfolio": PlannerEntry(
        "classical.heft_portfolio", "HEFT's schedules under varied transfer costs, the best of many", takes_all_ops=True
    ),
    "packed": PlannerEntry(
        "classical.packed",
        "list schedules, repairs and annealed cuts that fill tight memories first, the best of many",
        takes_all_ops=True,
    ),
    "m-etf": PlannerEntry("classical.etf", "earliest task first with memory (Baechi, Jeon et al. 2020)"),
    "m-sct": PlannerEntry("classical.sct", "small communication times with memory (Baechi, Jeon et al. 2020)"),
    "segments": PlannerEntry("classical.segments", "dynamic programming over cuts of random topological orders"),
    "greedy": PlannerEntry(
        "classical.baselines", "the best single move of each op in turn, until none helps", "plan_greedy"
    ),
    "annealing": PlannerEntry("classical.annealing", "simulated annealing with moves of ops and of clusters"),
    "annealing-portfolio": PlannerEntry(
        "classical.annealing", "simulated annealing from the best of many constructions", "plan_portfolio"
    ),
    "genetic": PlannerEntry("classical.genetic", "biased random-key genetic algorithm, as REGAL's without learning"),
    "optimal": PlannerEntry(
        "classical.optimal.planner", "CP-SAT on the whole schedule: proves small graphs, bounds larger ones"
    ),
    "coloc-rl": PlannerEntry("papers.coloc_rl", "REINFORCE on a sequence model (Mirhoseini et al. 2017)"),
    "spotlight": PlannerEntry("papers.spotlight", "PPO on the same sequence model (Gao et al. 2018)"),
    "hierarchical": PlannerEntry(
        "papers.hierarchical.planner", "a grouper and a placer that learn together (Mirhoseini et al. 2018)"
    ),
    "hierarchical-no-grouping": PlannerEntry(
        "papers.hierarchical.planner", "its ablation that places every op on its own", "plan_no_grouping"
    ),
    "hierarchical-random-grouping": PlannerEntry(
        "papers.hierarchical.planner", "its ablation with random groups", "plan_random_grouping"
    ),
    "placeto": PlannerEntry(
        "papers.placeto.planner", "a graph network that moves op groups one by one (Addanki et al. 2019)"
    ),
    "gnn": PlannerEntry("gnn.planner", "a graph neural network that revisits ops and moves them", takes_all_ops=True),
}


def load_planner(name: str) -> Planner:
    """The planner of this name; imports only that planner's module.

    >>> load_planner("heft").__module__
    'gnnplace.planners.classical.heft'

    Raises:
        GnnplaceError: no planner has this name.
    """
    if not isinstance(name, str):
        raise GnnplaceError(f"the planner is {shown(name)}; expected a name, such as {', '.join(PLANNERS)}")
    if name not in PLANNERS:
        hint = did_you_mean(name, PLANNERS, f"known are {', '.join(PLANNERS)}")
        raise GnnplaceError(f"there is no planner {name!r}; {hint} `gnnplace planners` describes each")
    entry = PLANNERS[name]
    return cast("Planner", getattr(importlib.import_module(f"gnnplace.planners.{entry.module}"), entry.function))

"""Training problems: reproducible, within limits, and from training families only."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from gnnplace.api import training_problems
from gnnplace.api.training_problems import ProblemRanges, SampledProblems, training_families, training_graphs
from gnnplace.devices.json_format import topology_to_json
from gnnplace.errors import GnnplaceError
from gnnplace.evaluation import Problem
from gnnplace.placement import Placement, check_legal
from gnnplace.planners.classical.annealing import plan as anneal_plan
from gnnplace.planners.classical.list_schedule import list_schedule
from gnnplace.planners.solution import Budget
from models_zoo.networks.catalog import FAMILIES
from models_zoo.networks.generated.sampling import SAMPLED_FAMILIES
from models_zoo.networks.shipped import manifest

SMALL = ProblemRanges(min_units=20, max_units=60, growth=30, max_zoo_ops=160)
TEST_FAMILIES = {name for name, family in FAMILIES.items() if family.split == "test"}


def test_seed_and_number_alone_determine_a_problem() -> None:
    source = SampledProblems(5, SMALL)
    first = [source(number) for number in (3, 17, 4)]
    copy = pickle.loads(pickle.dumps(source))
    again = [copy(number) for number in (4, 3, 17)]
    for one, other in zip(first, [again[1], again[2], again[0]], strict=True):
        assert one.name == other.name
        assert topology_to_json(one.problem.topology) == topology_to_json(other.problem.topology)
        assert (one.problem.op_time_s == other.problem.op_time_s).all()
        assert (one.start == other.start).all()
        assert one.start_s == other.start_s
    assert SampledProblems(6, SMALL)(3).start_s != first[0].start_s


def test_no_test_family_is_ever_drawn() -> None:
    assert TEST_FAMILIES
    assert not TEST_FAMILIES & set(training_families())
    rows = {row.key: row for row in manifest()}
    drawable = training_graphs(10**9)
    assert not TEST_FAMILIES & set(drawable)
    assert {rows[key].family for keys in drawable.values() for key in keys} == set(drawable)
    assert {rows[key].split for keys in drawable.values() for key in keys} == {"train"}
    assert not TEST_FAMILIES & set(SAMPLED_FAMILIES)

    zoo, generated = set(), set()
    known = {rows[key].name: rows[key].family for keys in training_graphs(SMALL.max_zoo_ops).values() for key in keys}
    for seed in range(400):
        name = training_problems._graph(np.random.default_rng(seed), 20, SMALL).name
        if name in known:
            zoo.add(known[name])
        else:
            generated.add(name.rsplit("_", 1)[0].replace("random_ordered", "random_dag"))
    assert zoo == set(training_graphs(SMALL.max_zoo_ops))
    assert generated == {"layered", "series_parallel", "fork_join", "random_dag", "wavefront"}


def test_starts_are_legal_and_fit_and_longer_searches_beat_shorter_ones() -> None:
    source = SampledProblems(0, SMALL)
    kinds, better = set(), 0
    for number in range(12):
        drawn = source(number)
        problem = drawn.problem
        check_legal(problem.graph, problem.topology, Placement(drawn.start))
        evaluated_s = problem.penalised_batch_s(problem.evaluator.evaluate_batch(drawn.start[None]))[0]
        assert drawn.start_s == pytest.approx(evaluated_s, rel=1e-12)
        assert 0 < drawn.start_s <= problem.worst_case_s
        assert problem.num_units * problem.topology.num_devices <= SMALL.max_pairs
        kinds.add((problem.grouped, problem.topology.num_devices))
        better += anneal_plan(problem, Budget(3000), 0).objective_s < 0.99 * drawn.start_s
    assert {grouped for grouped, _ in kinds} == {False, True}
    assert better >= 10


def test_a_number_without_a_fitting_draw_is_an_error() -> None:
    with pytest.raises(GnnplaceError, match="problem 0 of seed 0: none of 2 draws is small enough"):
        SampledProblems(0, replace(SMALL, max_pairs=1, max_draws=2))(0)


def test_a_draw_without_a_start_that_fits_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = list[str]()

    def nothing_fits(problem: Problem, rng: np.random.Generator, ranges: ProblemRanges) -> tuple[np.ndarray, float]:
        drawn.append(problem.graph.name)
        return problem.single_device_assignments[0], 2.0 * problem.worst_case_s

    monkeypatch.setattr(training_problems, "_start", nothing_fits)
    with pytest.raises(GnnplaceError, match="none of 3 draws"):
        SampledProblems(0, replace(SMALL, max_draws=3))(0)
    assert len(drawn) == 3


def test_without_constructions_a_start_is_on_one_device_where_heft_does_not_fit() -> None:
    devices = replace(SMALL.devices, binding_share=1.0, binding_memory=(0.6, 0.9), hosts_only_share=0.0)
    source = SampledProblems(0, replace(SMALL, constructions=0, least_headroom=0.0, devices=devices))
    on_one = 0
    for number in range(12):
        drawn = source(number)
        assert drawn.start_s <= drawn.problem.worst_case_s
        heft = list_schedule(drawn.problem).assignment
        fits = bool(drawn.problem.evaluator.evaluate_batch(heft[None]).shortfall_bytes[0] <= 0)
        assert (drawn.start == heft).all() if fits else len(set(drawn.start.tolist())) == 1
        on_one += not fits
    assert on_one >= 3


def test_problems_grow_to_their_full_size() -> None:
    ranges = ProblemRanges(min_units=20, max_units=500, growth=100)
    assert ranges.unit_limit(0) == pytest.approx(20)
    assert ranges.unit_limit(50) == pytest.approx(100)
    assert ranges.unit_limit(100) == ranges.unit_limit(10**6) == pytest.approx(500)
    any_problem = replace(SMALL, constructions=0, least_headroom=0.0)  # takes the first draw that fits
    source = SampledProblems(0, replace(any_problem, zoo_share=0.0, growth=100, max_units=200))
    assert max(source(number).problem.num_units for number in range(6)) <= 24
    assert max(source(number).problem.num_units for number in range(100, 112)) > 60

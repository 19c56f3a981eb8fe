"""Simulations on other hosts have the local results."""

import dataclasses
import pickle

import numpy as np
import pytest

from gnnplace.api import set_up
from gnnplace.distributed.cluster import different_results, different_seconds, machine_fingerprint
from gnnplace.distributed.evaluators import HostsSimulator, simulating
from gnnplace.distributed.pool import Pool
from gnnplace.evaluation import EvaluationBatch, Problem


def layered(max_groups: int) -> Problem:
    setup = set_up("zoo:layered_2000", "k40x4", max_groups=max_groups)
    return dataclasses.replace(setup, num_threads=1).problem()


def equal(one: EvaluationBatch, other: EvaluationBatch) -> bool:
    pairs = zip(vars(one).values(), vars(other).values(), strict=True)
    return all(np.array_equal(mine, theirs) for mine, theirs in pairs)


@pytest.mark.parametrize("max_groups", [64, 10_000])
def test_a_pickled_simulator_gives_the_same_bits(max_groups: int) -> None:
    problem = layered(max_groups)
    sent = pickle.loads(pickle.dumps(problem.evaluator))
    rows = np.random.default_rng(1).integers(0, 5, (8, problem.graph.num_ops))
    assert equal(sent.evaluate_batch(rows), problem.evaluator.evaluate_batch(rows))


@pytest.mark.usefixtures("cluster")
def test_batches_over_hosts_have_the_local_results_bit_for_bit_and_in_order() -> None:
    problem = layered(64)
    rows = np.random.default_rng(2).integers(0, 5, (500, 64))
    with Pool(simulating(problem.evaluator)) as pool:
        pool.wait_ready()
        shared = HostsSimulator(problem.evaluator, pool, 2000, 5)
        found = shared.evaluate_batch(rows)
        assert (pool.tally["counted"], pool.tally["lost"]) == (6, 0)  # three parts for each worker
        few = shared.evaluate_batch(rows[:3])
        assert pool.tally["counted"] == 6  # not worth a message
    expected = problem.evaluator.evaluate_batch(rows)
    assert equal(found, expected)
    assert np.array_equal(few.makespan_s, expected.makespan_s[:3])


def test_differences_of_versions_and_devices_are_named() -> None:
    here = machine_fingerprint()
    assert (different_results(here), different_seconds(here)) == ("", "")
    newer = {**here, "numba": "9.9", "cores": 999}
    assert different_results(newer) == f"numba is 9.9, here {here['numba']}"
    assert different_seconds(newer) == f"cores is 999, here {here['cores']}, numba is 9.9, here {here['numba']}"
    assert different_seconds({**here, "onnxruntime-gpu": "1.31.1"}) == "onnxruntime-gpu is 1.31.1, here not there"

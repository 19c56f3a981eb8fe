"""The plug-in without a cluster: the single device, finalists and planners that fail, and a missing policy."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Queue
from threading import Event, Thread
from typing import Self

import numpy as np
import pytest

from gnnplace.api import measuring
from gnnplace.api.options import PlaceOptions
from gnnplace.api.pipeline import set_up
from gnnplace.api.search import Run, attempt, chosen_planner
from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.distributed import plugin
from gnnplace.distributed.calls import SentFiles
from gnnplace.distributed.plugin import HostsExecutor, RayHosts, _compared
from gnnplace.errors import MeasurementFailed
from gnnplace.evaluation import Evaluation
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.measuring.comparison import Comparison
from gnnplace.measuring.timing import MeasureOptions, StoppingRule
from gnnplace.onnx_io.manifest import read_manifest
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.placement import Placement
from gnnplace.planners.solution import Budget
from gnnplace.policy.checkpoint import InvalidPolicy, save_policy
from gnnplace.policy.network import build_policy
from models_zoo.networks.generated.sampling import sample_graph
from tests.patience import PATIENCE_S

GRAPH = OpGraph.build(
    "pair", [Op(name, time_s={"a": 1.0, "b": 2.0}, memory_bytes=8) for name in "xy"], [Tensor("x", 1, ("y",))]
)


def machine(fast_bytes: int, slow_bytes: int) -> Topology:
    devices = (Device("a", memory_bytes=fast_bytes), Device("b", memory_bytes=slow_bytes))
    return Topology("two", devices, (Link("a", "b", 0.1, 10.0), Link("b", "a", 0.1, 10.0)))


@pytest.mark.parametrize(("fast_bytes", "slow_bytes", "device"), [(100, 100, "a"), (10, 100, "b"), (10, 10, None)])
def test_the_plain_session_runs_on_the_fastest_device_that_the_model_fits_on(
    fast_bytes: int, slow_bytes: int, device: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def simulated(executor: HostsExecutor, placements: Sequence[Placement]) -> list[Evaluation]:
        return [executor.setup.evaluate_groups(placement)[1] for placement in placements]

    monkeypatch.setattr(HostsExecutor, "_executed", simulated)
    setup = set_up(GRAPH, machine(fast_bytes, slow_bytes), max_groups=2)
    groups = setup.coarsening.graph.num_ops
    comparison = HostsExecutor("address", setup, PlaceOptions()).compare([Placement(np.zeros(groups, dtype=np.int64))])
    assert (comparison.plain.single_device or None) == device
    assert (comparison.plain.best is None) == (device is None)
    assert comparison.plain.best is None or comparison.plain.best.feasible
    assert len(comparison.evaluations) == 1


class SessionOfHosts:
    """Runs in a millisecond on one device; on several it hangs, while it loads or until it is closed."""

    loads_for_ever = False

    def __init__(self, placed: Path, *limits: object, **_: object) -> None:
        self.hangs = len({part.device for part in read_manifest(placed / "parts").parts}) > 1
        self.closed = Event()
        if self.hangs and self.loads_for_ever:
            raise MeasurementFailed(f"loading took longer than {limits[-1]} s")

    def run(self, *_: object) -> None:
        time.sleep(0.001)
        if self.hangs:
            self.closed.wait()
            raise MeasurementFailed("the runner was closed before the request was done")

    def close(self) -> None:
        self.closed.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.mark.parametrize("loads_for_ever", [False, True])
def test_a_finalist_that_hangs_over_hosts_fails_and_the_others_are_compared(
    small_model: Callable[[str], OnnxModel], monkeypatch: pytest.MonkeyPatch, loads_for_ever: bool
) -> None:
    rule = StoppingRule(warmup=1, min_repeats=6, max_repeats=6, max_s=0.2)
    monkeypatch.setattr(measuring, "MEASURE_OPTIONS", MeasureOptions(final=rule))
    monkeypatch.setattr(plugin, "DistributedSession", SessionOfHosts)
    monkeypatch.setattr(SessionOfHosts, "loads_for_ever", loads_for_ever)
    executor = HostsExecutor("address", set_up(small_model("chain"), "k40x2"), PlaceOptions())
    groups = np.arange(executor.setup.coarsening.graph.num_ops)
    compared: Queue[Comparison] = Queue()
    finalists = [Placement(groups % 2), Placement(np.ones_like(groups))]
    Thread(target=lambda: compared.put(executor.compare(finalists)), daemon=True).start()
    comparison = compared.get(timeout=PATIENCE_S)
    hanging, other = comparison.evaluations
    assert "took longer than" in hanging.failure
    assert not hanging.feasible
    assert (other.feasible, other.repeats, comparison.plain.best is not None) == (True, 6, True)


def test_the_row_of_a_planner_that_fails_on_a_host_has_the_seconds_that_it_took() -> None:
    row = _compared(set_up(GRAPH, machine(100, 100)), Budget(evaluations=None, seconds=0.0), 0, None, {}, "annealing")
    assert row["error"]
    assert row["makespan_s"] is None
    assert row["wall_s"] > 0.0


@pytest.mark.parametrize(("policy", "sent"), [("uniform", []), ("sent.safetensors", ["sent.safetensors", "sent.json"])])
def test_a_host_searches_with_a_policy_that_has_a_name_or_was_sent(
    policy: str, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(files: SentFiles, folder: Path) -> None:
        if files:
            save_policy(folder / "sent.safetensors", build_policy(0), {})

    monkeypatch.setattr(plugin, "write_sent_files", write)
    # On this graph the three policies lead to placements that differ by 10 % and more.
    setup, budget = set_up(sample_graph(np.random.default_rng(4), 80), "k40x4"), Budget(50)
    files: SentFiles = {name: [] for name in sent}
    learned, heuristic = (_compared(setup, budget, 0, policy, files, name) for name in ("gnn", "heft"))
    uniform, shipped = (
        attempt(setup, Run("gnn", chosen_planner("gnn", name), budget), 0).row(setup) for name in ("uniform", "shipped")
    )
    assert heuristic["error"] is None
    assert learned["makespan_s"] != shipped["makespan_s"]
    assert (learned["makespan_s"] == uniform["makespan_s"]) is (policy == "uniform")


def test_a_policy_that_cannot_be_read_is_an_error_before_anything_is_sent(tmp_path: Path) -> None:
    rows = RayHosts("10.0.0.1:6379").rows
    with pytest.raises(InvalidPolicy, match="absent"):
        next(rows(set_up(GRAPH, machine(100, 100)), ["gnn"], PlaceOptions(policy=tmp_path / "absent.safetensors")))

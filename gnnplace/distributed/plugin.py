"""The hosts of a Ray cluster as `gnnplace.api` uses them; `api` loads this file by name, and nothing imports it."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gnnplace.api import measuring as here
from gnnplace.api.options import PlaceOptions
from gnnplace.api.problem_setup import ProblemSetup, measurement_store, topology_of
from gnnplace.api.search import LEARNED, Attempt, ExecutedSearch, Executor, Run, attempt, chosen_planner
from gnnplace.api.workload import Workload, load_workload
from gnnplace.arrays import FloatArray
from gnnplace.cost.cost_model import CostModel
from gnnplace.cost.measured import CostStore, LinkCosts, MeasuredCost, median_links
from gnnplace.devices.topology import Device, Topology
from gnnplace.distributed.calls import SentFiles, called_on_all, case_result, sent_files, write_sent_files
from gnnplace.distributed.cluster import connected, different_results, nodes
from gnnplace.distributed.evaluators import HostsSimulator, Rows, answers_of_hosts, measuring, simulating
from gnnplace.distributed.execution import DistributedSession
from gnnplace.distributed.host_devices import HostsTopology, devices_on_hosts, names_hosts, probe_host_links
from gnnplace.distributed.pool import Pool
from gnnplace.distributed.workers import Role
from gnnplace.errors import GnnplaceError, MeasurementFailed, ProcessLost, UnsupportedModel
from gnnplace.evaluation import Evaluation, EvaluationBatch, Evaluator
from gnnplace.files import temporary_folder
from gnnplace.measuring.busy import check_free
from gnnplace.measuring.comparison import Comparison, PlainSessions, executed
from gnnplace.measuring.measured_evaluator import MeasuredEvaluator
from gnnplace.measuring.timing import SLOWEST, interleaved, run_pipelined
from gnnplace.measuring.worker_process import Answer, Job
from gnnplace.onnx_io.external_data import external_beside
from gnnplace.onnx_io.manifest import write_parts
from gnnplace.onnx_io.sample_inputs import sample_inputs
from gnnplace.onnx_io.segments import Segment
from gnnplace.placement import Placement
from gnnplace.planners.solution import Budget, Planner, Progress
from gnnplace.policy import POLICIES
from gnnplace.run_record import MeasuredSearch, PlannerRow
from gnnplace.running.session import PARTS, Session
from gnnplace.running.values import Feed

if TYPE_CHECKING:
    from gnnplace.training.process_group import StartGroup

C = TypeVar("C")

_MAX_PAIRS = 6
"""Maximum number of host pairs with a probe of every link; with more pairs the other links get the median."""


@dataclass(frozen=True)
class RayHosts:
    """The hosts of the Ray cluster at an address; implements `gnnplace.api.search.Hosts`.

    Methods raise `GnnplaceError` without a cluster at the address, `InvalidTopology` if it lacks a host or a device,
    `MeasurementFailed` if a model does not run on a device, and `ProcessLost` if a host is lost.
    """

    address: str

    def connection(self) -> AbstractContextManager[None]:
        """One connection for the whole block."""
        return connected(self.address)

    def own(self, devices: object) -> bool:
        """Whether the device set spans hosts: its names have hosts, or it is `auto` on a cluster of several hosts."""
        if not isinstance(devices, str):
            return False
        if devices.strip() != "auto":
            return names_hosts(devices)
        with connected(self.address):
            return len(nodes()) > 1

    def topology(self, devices: str) -> Topology:
        """Devices of several hosts; probes unknown links first."""
        with connected(self.address):
            found = devices_on_hosts(devices)
            return found.topology(_link_costs(found))

    def profiled(
        self, workload: Workload, devices: str, options: PlaceOptions
    ) -> tuple[Topology, CostModel, tuple[str, ...]]:
        """Devices of several hosts, the costs of a workload on them, and warnings.

        Of several equal hosts with the same devices, one profiles the model, and keeps the costs in its own store.
        """
        if options.measure and len(workload.models) > 1:
            raise UnsupportedModel("over several hosts one size of the inputs can be measured; leave --measure out")
        with connected(self.address):
            found = devices_on_hosts(devices)
            topology = found.topology(_link_costs(found))
            if workload.onnx is None and not options.measure:
                return topology, MeasuredCost(CostStore()), ()
            store, warnings = _profiled_on_hosts(workload, found, options)
            return topology, MeasuredCost(store), warnings

    @contextmanager
    def simulating(self, setup: ProblemSetup, on_warning: Callable[[str], None]) -> Iterator[Evaluator]:
        """An evaluator whose large batches are simulated by all hosts."""
        local, role = setup.problem().evaluator, simulating(_portable(setup).problem().evaluator)
        with connected(self.address), Pool[Rows, EvaluationBatch](role, on_warning=on_warning) as pool:
            pool.wait_ready()
            yield HostsSimulator(local, pool, setup.workload.graph.num_ops, setup.topology.num_devices)

    @contextmanager
    def executing(
        self, evaluator: MeasuredEvaluator, options: PlaceOptions, on_warning: Callable[[str], None]
    ) -> Iterator[int]:
        """Lets the hosts execute the placements of an evaluator; gives the number that run at once."""
        with ExitStack() as stack:
            stack.enter_context(connected(self.address))
            role, pool_options = measuring(evaluator, here.MEASURE_OPTIONS.timeout_s, options.force)
            pool = stack.enter_context(Pool[Job, Answer](role, pool_options, on_warning))
            pool.wait_ready()
            evaluator.elsewhere = partial(answers_of_hosts, pool)
            try:
                yield pool.num_workers
            finally:
                evaluator.elsewhere = None

    @contextmanager
    def executor(self, setup: ProblemSetup, options: PlaceOptions) -> Iterator[Executor]:
        """Executes placements whose devices are on several hosts."""
        with connected(self.address):
            own = HostsExecutor(self.address, setup, options)
            yield Executor(own.search, own.compare, own.remembered, own.segments_of)

    def rows(
        self, setup: ProblemSetup, planners: Sequence[str], options: PlaceOptions
    ) -> Iterator[tuple[int, PlannerRow]]:
        """The rows of a comparison with the index of the planner, in order of completion.

        A row names the host of its planner; its seconds are those of that host.
        """
        budget, best_s = dataclasses.replace(options.budget, on_progress=None), np.inf
        policy = options.policy if LEARNED in planners else None
        chosen_planner(LEARNED, policy)  # a policy that cannot be used is an error before anything is sent
        file = None if policy is None or policy in POLICIES else Path(policy)
        with ExitStack() as stack:
            stack.enter_context(connected(self.address))
            paths = () if file is None else (file, file.with_suffix(".json"))
            files = sent_files({path.name: path for path in paths})
            arguments = (_portable(setup), budget, options.seed, policy if file is None else file.name, files)
            role = Role(partial, (_compared, *arguments), different_results)
            pool = stack.enter_context(Pool[str, PlannerRow](role, on_warning=options.on_warning))
            for done in pool.results(planners):
                lost = Attempt(planners[done.index], done.wall_s, GnnplaceError(done.failure))
                row = done.value or lost.row(setup)
                best_s = min(best_s, row["makespan_s"] or np.inf)
                if options.on_progress is not None:
                    options.on_progress(Progress(row["planner"], row["evaluations"], row["wall_s"], best_s))
                yield done.index, {**row, "host": done.host}

    def process_group(self) -> StartGroup:
        """Starts the processes of a training run on the hosts."""
        from gnnplace.distributed.training import hosts_process_group

        return partial(hosts_process_group, self.address)

    def num_cores(self) -> int:
        """The number of cores of all hosts."""
        with connected(self.address):
            return sum(node.cores for node in nodes())


@dataclass(frozen=True, eq=False)
class HostsExecutor:
    """Executes placements over several hosts; see `gnnplace.api.search.Executor`. The search is simulated."""

    address: str
    setup: ProblemSetup
    options: PlaceOptions

    def search(self, planner: Planner) -> ExecutedSearch:
        """Runs the chosen planner in the simulator."""
        solution = planner(self.setup.problem(), self.options.budget, self.options.seed)
        counts: MeasuredSearch = {
            "executed": 0, "recalled": 0, "executing_s": 0.0, "wall_s": solution.wall_s, "failed": 0, "retried": 0,
        }  # fmt: skip
        return ExecutedSearch(solution, counts)

    def compare(self, placements: Sequence[Placement]) -> Comparison:
        """The measured costs of placements that run in turns, and of the best single device on which the model fits."""
        num_groups = self.setup.coarsening.graph.num_ops
        alone = {name: Placement(np.full(num_groups, i)) for i, name in enumerate(self.setup.topology.device_names)}
        simulated = {name: self.setup.group_evaluator.evaluate(placement) for name, placement in alone.items()}
        able = {name: evaluation.makespan_s for name, evaluation in simulated.items() if evaluation.feasible}
        if not able:
            return self.remembered(placements)
        best = min(able, key=able.__getitem__)
        *evaluations, single = self._executed([*placements, alone[best]])
        return Comparison(
            tuple(evaluations), PlainSessions() if single.failure else PlainSessions(single, best, single, best)
        )

    def remembered(self, placements: Sequence[Placement]) -> Comparison:
        """The costs of placements without a plain session; they are executed, as the search did not execute them."""
        return Comparison(tuple(self._executed(placements)))

    def segments_of(self, placement: Placement) -> tuple[Segment, ...]:
        """The segments in which a placement runs."""
        whole, _ = self.setup.evaluate_groups(placement)
        order = self.setup.simulator.schedule(whole).order()
        return self.setup.workload.segments(whole.assignment, order, self.setup.topology.excludes)

    def _executed(self, placements: Sequence[Placement]) -> list[Evaluation]:
        """The measured cost of each placement of the op groups; equal ones run once.

        The last placement is the reference, whose seconds limit those of the others as `MeasureOptions.timeout_s` describes.
        A placement that fails is removed, and the others start again.
        """
        (model,), names = self.setup.workload.models, self.setup.topology.device_names
        feed = sample_inputs(model, np.random.default_rng(self.options.seed))
        requests = here.REQUESTS if self.setup.objective == "throughput" else 1
        options = here.MEASURE_OPTIONS
        loading_s = running_s = options.timeout_s
        different = {placement.assignment.tobytes(): placement for placement in reversed(placements)}
        libraries, share = self.options.custom_ops, 1 / len(different)
        finalists: list[_Finalist] = []
        with temporary_folder() as folder, ExitStack() as stack:
            for number, placement in enumerate(different.values()):
                placed = folder / f"placement-{number}"
                write_parts(model, self.segments_of(placement), names, placed / PARTS)
                finalist, begin_s = _Finalist(feed, requests, running_s), time.perf_counter()
                finalists.append(finalist)
                try:
                    opened = DistributedSession(placed, self.address, None, libraries, share, loading_s)
                    finalist.session = stack.enter_context(opened)
                    if number == 0:
                        loading_s = min(loading_s, options.loading_s + SLOWEST * (time.perf_counter() - begin_s))
                        _, reference_s = finalist(), finalist()
                        running_s = min(running_s, options.final.longest_s(1, SLOWEST * reference_s))
                except (MeasurementFailed, ProcessLost) as error:
                    finalist.failure = str(error)
            while running := [finalist for finalist in reversed(finalists) if not finalist.failure]:
                for finalist in running:
                    finalist.limit_s, finalist.spent_s = running_s, 0.0
                with suppress(MeasurementFailed):
                    samples = interleaved(running, options.final, np.random.default_rng(self.options.seed)) / requests
                    for finalist, row_s in zip(running, samples, strict=True):
                        finalist.row_s = row_s
                    break
        found = {
            key: executed(self.setup.evaluate_groups(placement)[1], finalist.row_s, finalist.failure)
            for (key, placement), finalist in zip(different.items(), finalists, strict=True)
        }
        return [found[placement.assignment.tobytes()] for placement in placements]


@dataclass(eq=False)
class _Finalist:
    """A placement over hosts whose runs together have a limit of time."""

    feed: Feed
    requests: int
    limit_s: float
    spent_s: float = 0.0
    session: Session | None = None
    row_s: FloatArray | None = None
    """`[R]` seconds of its runs side by side; None after a failure."""
    failure: str = ""

    def __call__(self) -> float:
        """The seconds of one run; a run that fails, or exceeds the limit, ends the session and raises `MeasurementFailed`."""
        assert self.session is not None
        begin_s, timer = time.perf_counter(), Timer(self.limit_s - self.spent_s, self._stop)
        timer.start()
        try:
            if self.requests > 1:
                run_pipelined(self.session, self.feed, self.requests)
            else:
                self.session.run(None, self.feed)
        except GnnplaceError as error:
            self.failure = self.failure or str(error)
            raise MeasurementFailed(self.failure) from error
        finally:
            timer.cancel()
        taken_s = time.perf_counter() - begin_s
        self.spent_s += taken_s
        return taken_s

    def _stop(self) -> None:
        assert self.session is not None
        self.failure = f"its runs took longer than {self.limit_s:.3g} s"
        self.session.close()


def _link_costs(found: HostsTopology) -> dict[tuple[str, str], LinkCosts]:
    """The costs between hosts by their names; unknown links are probed, and stored by the facts of both hosts."""
    stores = {}
    for one, other in found.pairs:
        fingerprints = {host.name: dict(host.fingerprint) for host in (one, other)}
        stores[one.name, other.name] = measurement_store({"hosts": fingerprints})
    known = {pair: store.costs().device_links.get(pair) for pair, store in stores.items()}
    unknown = [pair for pair in found.pairs if known[pair[0].name, pair[1].name] is None]
    if unknown:
        neighbours = list(pairwise(part.host for part in found.parts))
        chosen = unknown if len(unknown) <= _MAX_PAIRS else neighbours[:_MAX_PAIRS]
        probed = probe_host_links(chosen)
        for one, other in chosen:
            ends = Device(one.name, "host"), Device(other.name, "host")
            stores[one.name, other.name].add_link(*ends, probed[one.name, other.name])
        middle = median_links((None, costs) for costs in probed.values())[None]
        known |= {(one.name, other.name): probed.get((one.name, other.name), middle) for one, other in unknown}
    return {ends: costs for (one, other), costs in known.items() if costs for ends in ((one, other), (other, one))}


def _profiled_on_hosts(
    workload: Workload, found: HostsTopology, options: PlaceOptions
) -> tuple[CostStore, tuple[str, ...]]:
    """The costs that the hosts measure for the model on their devices, and their warnings."""
    workload.check_executable()
    model = workload.models[0]
    libraries = {f"{number}-{path.name}": path for number, path in enumerate(map(Path, options.custom_ops))}
    files = sent_files({model.path.name: model.path, **external_beside(model.path), **libraries})
    dims = dict(options.dims) or dict(model.dims)
    shape = {"dims": dims} if model.inputs is None else {"inputs": model.inputs}
    alike = [json.dumps([part.spec, dict(part.host.fingerprint)], sort_keys=True, default=str) for part in found.parts]
    first = dict(reversed(list(zip(alike, found.parts, strict=True))))
    arguments = (files, (model.path.name, *libraries), shape, options.seed, options.force)
    answers = called_on_all([(part.host, _profiled_here, (part.spec, *arguments)) for part in first.values()])
    by_key = dict(zip(first, answers, strict=True))
    warnings = dict.fromkeys(
        f"host {part.host.name}: {warning}" for key, part in first.items() for warning in by_key[key][1]
    )
    return found.costs(by_key[key][0] for key in alike), tuple(warnings)


def _profiled_here(
    spec: str, files: SentFiles, names: Sequence[str], shape: Mapping[str, Any], seed: int, force: bool
) -> tuple[CostStore, tuple[str, ...]]:
    """On a host: the costs that its store knows, after unknown ones were measured, and warnings.

    `names` are those of the files of the model and of its libraries of operators; `shape` has the `dims` or the `inputs` of `load_workload`.
    """
    topology, (name, *libraries) = topology_of(spec), names
    with temporary_folder() as folder:
        write_sent_files(files, folder)
        custom_ops = [folder / library for library in libraries]
        workload = load_workload(folder / name, custom_ops=custom_ops, to_run=True, **shape)
        warnings = list(check_free(topology.device_names, force))
        costs = here.profiled(workload, topology, seed, warnings.append)
        return costs, tuple(warnings)


def _portable(setup: ProblemSetup) -> ProblemSetup:
    """The setup without the ONNX model, which simulations do not need, for one thread."""
    return dataclasses.replace(setup, workload=Workload(setup.workload.graphs), num_threads=1)


def _compared(
    setup: ProblemSetup, budget: Budget, seed: int, policy: str | None, files: SentFiles, name: str
) -> PlannerRow:
    """On a host: the row of one planner; `policy`, which only the learned one takes, names a file that was sent or is in `POLICIES`."""
    with temporary_folder() as folder:
        write_sent_files(files, folder)
        path = folder / policy if policy is not None and policy in files else policy
        planner = chosen_planner(name, path if name == LEARNED else None)
        return attempt(setup, Run(name, planner, budget), seed).row(setup)


def results_on_hosts(
    cases: Sequence[C], run: Callable[[Any], Mapping[str, Any]], address: str, on_warning: Callable[[str], None]
) -> Iterator[tuple[C, dict[str, Any]]]:
    """Pairs of a bench case and its result in the order in which cases finish; results name the `host` and its `cpu`.

    Raises:
        GnnplaceError: a case cannot be run, or there is no host to run it on.
    """
    role = Role(partial, (case_result, run), different_results)
    with connected(address), Pool[C, dict[str, Any]](role, on_warning=on_warning) as pool:
        for done in pool.results(cases):
            if done.value is None:
                raise GnnplaceError(f"{cases[done.index]}: {done.failure}")
            yield cases[done.index], {**done.value, "host": done.host}

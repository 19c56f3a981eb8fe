"""The parts that all benches share: options, cases that are stored as they finish, and the stored result.

A bench defines its cases (a frozen dataclass of plain values), a function that runs one case, its rows and its summary.
`run_cases` runs the cases that no earlier start has finished, in processes or on the hosts of a Ray cluster.
"""

import importlib
import json
import platform
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from gnnplace.devices.detect import allowed_cores, cpu_model
from gnnplace.errors import GnnplaceError
from gnnplace.files import append_json_line, read_json_lines, write_json_lines, write_text
from gnnplace.isolated_process import spawned_pool
from gnnplace.report import BENCH_FORMAT
from gnnplace.versions import installed_versions

C = TypeVar("C")
T = TypeVar("T")
Result = Mapping[str, Any]
"""Figures of one case, as JSON."""
_VERSIONED = (
    "gnnplace", "numpy", "numba", "onnx", "onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino", "torch", "dgl", "pymetis", "mtkahypar", "ortools",
)  # fmt: skip
_ON_HOSTS = "gnnplace.distributed.plugin"


@dataclass(frozen=True)
class BenchOptions:
    """Options of a bench; None stands for the bench's own default."""

    seed: int = 0
    """First seed."""
    evaluations: int | None = None
    """Evaluations per search."""
    seeds: int | None = None
    """Number of seeds, counted from `seed`."""
    only: tuple[str, ...] = ()
    """Parts of the names of the cases to run; all cases if empty."""
    rows: tuple[str, ...] = ()
    """Names of the planners or variants to run on every case; all of them if empty."""
    policy: Path | None = None
    """Trained policy."""
    jobs: int = 1
    """Number of processes that run cases."""
    cases_file: Path | None = field(default=None, compare=False)
    """File to which every finished case is appended, so that a second start skips it."""
    on_progress: Callable[[str], None] = field(default=lambda text: None, compare=False)
    """Receives one line of text per finished case."""
    extend: Path | None = field(default=None, compare=False)
    """Stored result whose runs are taken over."""
    ray: str | None = None
    """Address of a Ray cluster that runs the cases instead of local processes."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """Command-line arguments that give these options, without the seed."""
        values = {
            "evaluations": self.evaluations,
            "seeds": self.seeds,
            "jobs": self.jobs if self.jobs > 1 else None,
            "ray": self.ray,
            "rows": ",".join(self.rows) or None,
            "policy": self.policy and self.policy.name,
        }
        named = [text for name, value in values.items() if value is not None for text in (f"--{name}", str(value))]
        parts = [text for part in self.only for text in ("--only", part)]
        return (*named, *parts, *(() if self.extend is None else ("--extend", self.extend.name)))

    def seed_range(self, default: int) -> range:
        """Seeds to run, where `default` is the bench's own number of seeds."""
        return range(self.seed, self.seed + (self.seeds or default))


@dataclass(frozen=True)
class BenchResult:
    """Rows and summary of a bench, with the options that they were made with."""

    suite: str
    options: BenchOptions
    rows: Sequence[Result]
    summary: Result
    details: Result = field(default_factory=dict)
    """Data of tables and pictures besides the rows."""
    columns: tuple[str, ...] = ()
    """Columns that a terminal shows; all of them if empty."""

    def document(self) -> dict[str, Any]:
        """The result as JSON, with the command, versions and machine that reproduce it."""
        arguments = ("--seed", str(self.options.seed), *self.options.arguments)
        return {
            "format": BENCH_FORMAT,
            "suite": self.suite,
            "command": shlex.join(("gnnplace", "bench", self.suite, *arguments)),
            "seed": self.options.seed,
            "versions": library_versions(),
            "machine": {
                "cpu": cpu_model(), "cores": len(allowed_cores()), "python": platform.python_version(),
            },
            "summary": dict(self.summary),
            "rows": [dict(row) for row in self.rows],
            **({"details": dict(self.details)} if self.details else {}),
        }  # fmt: skip


def write_result(result: BenchResult, path: Path) -> None:
    """Writes a result as JSON."""
    write_text(path, json.dumps(result.document(), indent=1, allow_nan=False) + "\n")


def library_versions() -> dict[str, str]:
    """Versions of the installed libraries that affect results, by name."""
    return installed_versions(*_VERSIONED)


def matching(by_name: Mapping[str, T], only: Sequence[str], noun: str) -> list[T]:
    """Values whose name contains one of the texts; all values if there is no text.

    Raises:
        GnnplaceError: a text is in no name; the message calls the values by `noun`.
    """
    names = tuple(by_name)
    for text in only:
        if not any(text in name for name in names):
            raise GnnplaceError(f"no {noun} has {text!r} in its name, such as {names[0]!r} or {names[-1]!r}")
    return [value for name, value in by_name.items() if not only or any(text in name for text in only)]


def check_known(names: Iterable[str], known: Collection[str], noun: str) -> None:
    """Raises `GnnplaceError` for the first name that is not known; the message calls it by `noun`."""
    for name in names:
        if name not in known:
            raise GnnplaceError(f"there is no {noun} {name!r}; known are {', '.join(known)}")


def run_cases(
    cases: Sequence[C],
    run: Callable[[C], Result],
    options: BenchOptions = BenchOptions(),
    describe: Callable[[C, Result], str | None] = lambda case, result: None,
    suffix: str = "",
) -> dict[C, dict[str, Any]]:
    """Results of all cases, in their order; cases in the options' file are not run again.

    Cases are instances of one frozen dataclass of plain values, and `run` can be pickled. The file records the library
    versions of every case, and cases of other versions are run again. It does not notice changed planners: delete it
    after a change. `suffix` extends its name where a bench has cases of several kinds. `describe` gives the progress line
    of a finished case, or None for no line. Wall seconds include the load of the other processes.

    Raises:
        GnnplaceError: a case cannot be run, or the file is not one of finished cases.
    """
    if not cases:
        return {}
    path = options.cases_file
    file = path.with_name(path.name + suffix) if path is not None else None
    versions, results = library_versions(), dict[C, dict[str, Any]]()
    if file is not None:
        results = finished_cases(file, type(cases[0]), versions)
        write_json_lines(file, read_json_lines(file, GnnplaceError))  # drops a last line that a kill has cut off

    def store(case: C, result: Result) -> None:
        results[case] = dict(result)
        if file is not None:
            append_json_line(file, {"case": vars(case), "versions": versions, "result": result})
        line = describe(case, result)
        if line is not None:
            options.on_progress(line)

    missing = [case for case in cases if case not in results]
    if options.ray is None:
        _run_in_processes(missing, run, options.jobs, store)
    elif missing:
        on_hosts = importlib.import_module(_ON_HOSTS).results_on_hosts
        for case, result in on_hosts(missing, run, options.ray, options.on_progress):
            store(case, result)
    return {case: results[case] for case in cases}


def _run_in_processes(
    cases: Sequence[C], run: Callable[[C], Result], jobs: int, store: Callable[[C, Result], None]
) -> None:
    with spawned_pool(jobs) as pool:
        left = {pool.submit(run, case): case for case in cases}
        try:
            for future in as_completed(list(left)):
                store(left[future], future.result())
                del left[future]
        except BaseException:
            pool.shutdown(cancel_futures=True)  # waits for the running cases, which are worth storing
            for future, case in left.items():
                if not future.cancelled() and future.exception() is None:
                    store(case, future.result())
            raise


def finished_cases(file: Path, kind: type[C], versions: Mapping[str, str]) -> dict[C, dict[str, Any]]:
    """Results by case of the lines that were made with these library versions; a cut-off last line is skipped.

    Raises:
        GnnplaceError: another line is not a finished case.
    """
    found: dict[C, dict[str, Any]] = {}
    for number, entry in enumerate(read_json_lines(file, GnnplaceError), start=1):
        try:
            if entry["versions"] == versions:
                found[kind(**entry["case"])] = entry["result"]
        except (KeyError, TypeError) as problem:
            raise GnnplaceError(f"{file}: line {number} is no case of a bench ({problem}); delete the file") from None
    return found

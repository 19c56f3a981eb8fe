"""Inputs that an isolated process reads one after the other, drawn at random or guided by coverage."""

import importlib
import io
import itertools
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from random import Random
from threading import Thread

import gnnplace
from gnnplace.errors import GnnplaceError
from tests.robustness.hostile.mutations import LARGEST_BYTES, mutant, mutated
from tests.robustness.hostile.room import Files, Room, limit_memory, packed, peak_bytes, unpacked

ACCEPTED, REFUSED = "accepted", "refused"
_INSTRUMENTED = (
    "gnnplace.onnx_io", "gnnplace.devices", "gnnplace.graph.json_format", "gnnplace.graph.op_graph", "gnnplace.placement",
    "gnnplace.files", "gnnplace.cost.measured", "gnnplace.policy.checkpoint", "gnnplace.report", "gnnplace.running.feed",
)  # fmt: skip
"""Modules that atheris instruments besides onnx-ir: code that reads files. Code that numba compiles cannot be instrumented."""


@dataclass(frozen=True)
class Case:
    """A range of inputs of one kind."""

    target: str
    source: str
    """`chance` or `guided`."""
    seed: int
    first: int
    count: int


@dataclass(frozen=True)
class Outcome:
    verdict: str
    """`ACCEPTED`, `REFUSED`, or an error and its place."""
    took_s: float
    peak_bytes: int
    """Peak memory of the process so far."""
    files: Files | None = None
    """Input, if neither accepted nor refused."""


def reader(case: Case, folder: Path, only: Files | None) -> Callable[[None], Outcome]:
    """Prepares an isolated process; each call of the returned function reads the next input of the case, or `only`."""
    warnings.simplefilter("error")
    room = Room(folder)
    room.enter()
    guided = case.source == "guided" and only is None
    if guided:
        _instrument()
    from tests.robustness.hostile.targets import TARGETS

    target = TARGETS[case.target]
    seeds = target.seeds()
    for files in seeds:  # compiles code and loads libraries before memory and seconds count
        outcome_of(target.read, files, room)
    by_chance = (mutant(seeds, Random(f"{case.target} {case.seed} {number}")) for number in itertools.count(case.first))
    inputs = iter([only]) if only is not None else _guided(case, seeds) if guided else by_chance
    limit_memory()

    def read(_: None) -> Outcome:
        files = next(inputs)
        begin_s = time.perf_counter()
        verdict = outcome_of(target.read, files, room)
        took_s = time.perf_counter() - begin_s
        return Outcome(verdict, took_s, peak_bytes(), None if verdict in {ACCEPTED, REFUSED} else dict(files))

    return read


def outcome_of(read: Callable[[Path, Path], object], files: Files, room: Room) -> str:
    """The verdict on one input; see `Outcome`."""
    room.furnish(files)
    try:
        read(room.input, room.out)
        verdict = ACCEPTED
    except GnnplaceError as error:
        verdict = REFUSED if str(error).strip() else f"{type(error).__name__} without a message"
    except BaseException as error:
        verdict = f"{type(error).__name__} at {_place(error)}: {' '.join(str(error).split())[:200]}"
    stray = room.stray(files)
    return verdict if stray is None else f"file {stray}"


def _place(error: BaseException) -> str:
    """The innermost line of the package, else of the traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    package = Path(gnnplace.__file__).parent
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(package)]
    last = (own or frames)[-1]
    name = Path(last.filename)
    return f"{name.relative_to(package) if own else name.name}:{last.lineno} ({last.name})"


def _instrument() -> None:
    """Counts coverage in modules that are imported from now on."""
    import atheris

    root = Path(gnnplace.__file__).parent
    ours = [".".join(path.relative_to(root.parent).with_suffix("").parts) for path in root.rglob("*.py")]
    modules = {name.removesuffix(".__init__") for name in ours}
    others = [name for name in modules if not name.startswith(_INSTRUMENTED)]
    with redirect_stderr(io.StringIO()):  # atheris prints every module
        atheris.instrument_imports(include=["gnnplace", "onnx_ir"], exclude=others).__enter__()
        importlib.import_module("tests.robustness.hostile.targets")


def _guided(case: Case, seeds: Sequence[Files]) -> Iterator[Files]:
    """Draws inputs from those that reached new code, as libFuzzer keeps them, beginning with the seeds.

    LibFuzzer runs in a thread, which hands over one input and waits until the next one is drawn. The code that reads an
    input then counts as covered by it.
    """
    import atheris

    rng = Random(f"{case.target} {case.seed} {case.first} guided")
    drawn: SimpleQueue[Files] = SimpleQueue()
    finished: SimpleQueue[None] = SimpleQueue()

    def change(data: bytes, most: int, seed: int) -> bytes:
        files, own = unpacked(data) or rng.choice(seeds), Random(seed)
        for _ in range(own.choice((1, 1, 2, 4))):
            files = mutated(files, seeds, own)
        text = packed(files)
        return text if len(text) <= most else packed(own.choice(seeds))

    def one(data: bytes) -> None:
        files = unpacked(data)
        if files:
            drawn.put(files)
            finished.get()

    corpus = Path.cwd().parent / "temporary" / "corpus"
    corpus.mkdir()
    for number, files in enumerate(seeds):
        (corpus / str(number)).write_bytes(packed(files))
    limits = ["-timeout=3600", "-rss_limit_mb=0", "-malloc_limit_mb=0", "-verbosity=0", f"-max_len={2 * LARGEST_BYTES}"]
    atheris.Setup(["hostile", *limits, f"-seed={case.seed + 1}", str(corpus)], one, custom_mutator=change)
    signal.signal = lambda *_: None  # type: ignore[assignment]  # for Ctrl-C, and only the main thread may
    Thread(target=atheris.Fuzz, daemon=True).start()
    while True:
        yield drawn.get()
        finished.put(None)

"""The tables that compiled threads read and change, from the steps of a placed model."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gnnplace.arrays import IntArray
from gnnplace.devices.real_names import RealDevice
from gnnplace.onnx_io.part import Part
from gnnplace.running.compiled.book import FREE, SPREAD, Program, Shared
from gnnplace.running.compiled.c_api import c_interface, name_pointers
from gnnplace.running.compiled.primitives import address_of
from gnnplace.running.dataflow import START, Step
from gnnplace.running.devices import caller_cores, parse_device

_DESCRIBING = (
    "GetTensorTypeAndShape", "GetTensorElementType", "GetDimensionsCount", "GetDimensions", "GetTensorMutableData",
    "ReleaseTensorTypeAndShapeInfo",
)  # fmt: skip
_SPINS, _PATIENT_SPINS = 2_000, 40_000  # some 40 us, about what a thread takes to wake up, and some 0.8 ms


def value_numbers(parts: Iterable[Part]) -> dict[str, int]:
    """Index of each value of the parts."""
    names = dict.fromkeys(name for part in parts for name in (*part.inputs, *part.outputs))
    return {name: index for index, name in enumerate(names)}


def new_program(
    steps: Sequence[Step],
    threads: Sequence[Sequence[int]],
    sessions: Sequence[int],
    results: Sequence[str],
    system: int,
    kept: list[Any],
) -> Program:
    """The table of what stays the same.

    `steps` are in the global run order, `threads` are the parts of each thread, `sessions` the addresses of the parts' sessions,
    `results` the outputs of the model, `system` is the number of the futex call. `kept` receives what has to stay alive.
    """
    parts, api = [step.part for step in steps], c_interface().addresses
    value, reals = value_numbers(parts), [parse_device(step.part.device) for step in steps]
    thread_of = np.zeros(len(parts), dtype=np.int64)
    for thread, own in enumerate(threads):
        thread_of[own] = thread
    shared_cores = _shared_cores(reals)
    successors: list[list[int]] = [[] for _ in parts]
    for step in steps:
        for number in sorted(step.waits - {START}):
            successors[number].append(step.number)
    names = {
        kind: name_pointers([name for part in parts for name in getattr(part, kind)], kept)
        for kind in ("inputs", "outputs")
    }
    inputs, outputs = ([[value[name] for name in getattr(part, kind)] for part in parts] for kind in names)
    cores = [[shared_cores[core] for core in real.cores if core in shared_cores] for real in reals]
    first_cores = [caller_cores(reals[own[0]])[0] for own in threads]
    produced = {name for part in parts for name in part.outputs}
    functions = (
        *(api[name] for name in ("Run", "ReleaseValue", "ReleaseStatus")),
        *map(address_of, ("clock_gettime", "sched_yield")),
        *(api[name] for name in _DESCRIBING),
    )
    return Program(
        _ints(sessions), thread_of, *_csr(threads), *_csr(inputs), _ints(names["inputs"]), *_csr(outputs),
        _ints(names["outputs"]), *_csr(successors), _ints(len(step.waits - {START}) for step in steps),
        _readers(value, parts, produced, results), _ints(name not in produced for name in value), *_csr(cores), _ints(shared_cores.get(core, -1) for core in first_cores),
        int(thread_of[-1]), _ints(functions), _ints([address_of("syscall"), system]), _SPINS, _PATIENT_SPINS,
    )  # fmt: skip


def new_shared(program: Program, slots: int) -> Shared:
    """The words that threads change, for a number of requests under way."""
    parts, threads, values = len(program.sessions), len(program.thread_offsets) - 1, len(program.uses)
    cores = max(1, int(program.cores.max(initial=0)) + 1)
    most = int((np.diff(program.input_offsets) + np.diff(program.output_offsets)).max())
    sizes = {
        "waits": slots * parts, "uses": slots * values, "values": slots * values, "part_ns": slots * parts,
        "position": slots * threads * SPREAD, "role": SPREAD, "awake": (threads + 1) * SPREAD,
        "asleep": (threads + 1) * SPREAD, "holder": cores * SPREAD, "lock": SPREAD, "closing": SPREAD,
    }  # fmt: skip
    words = {name: np.zeros(sizes.get(name, slots * SPREAD), dtype=np.int64) for name in Shared._fields}
    words["number"][:] = words["holder"][:] = FREE
    return Shared(**{**words, "scratch": np.zeros((threads, most + 2), dtype=np.int64)})


def _readers(
    value: Mapping[str, int], parts: Sequence[Part], produced: Collection[str], results: Sequence[str]
) -> IntArray:
    """`[V]` parts that read each value, and one for the caller for inputs and outputs of the model."""
    uses = np.zeros(len(value), dtype=np.int64)
    for part in parts:
        uses[[value[name] for name in part.inputs]] += 1
    for name, index in value.items():
        uses[index] += name in results or name not in produced
    return uses


def _shared_cores(reals: Iterable[RealDevice]) -> dict[int, int]:
    """Numbers of the cores that devices of several threads compute on."""
    threads: dict[int, set[tuple[int, ...]]] = defaultdict(set)
    for real in reals:
        for core in real.cores:
            threads[core].add(caller_cores(real))
    return {
        core: number for number, core in enumerate(sorted(core for core, users in threads.items() if len(users) > 1))
    }


def _ints(values: Iterable[int]) -> IntArray:
    return np.array(list(values), dtype=np.int64)


def _csr(rows: Sequence[Sequence[int]]) -> tuple[IntArray, IntArray]:
    """Offsets and entries of rows."""
    return _ints(np.cumsum([0, *map(len, rows)]).tolist()), _ints(entry for row in rows for entry in row)

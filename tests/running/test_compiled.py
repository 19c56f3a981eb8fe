"""Compiled threads give what the Python loop gives, and only where they can."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from gnnplace.devices.detect import pinned_to
from gnnplace.errors import InvalidInput, MeasurementFailed
from gnnplace.onnx_io.part import Part
from gnnplace.running.compiled import devices as compiled
from gnnplace.running.compiled.book import Program, Shared
from gnnplace.running.compiled.devices import CompiledDevices
from gnnplace.running.compiled.loop import serve, serve_until
from gnnplace.running.pipeline import Pipeline, python_devices
from gnnplace.running.runner import DevicesOf, PlacedRunner
from tests.parts import add_one, part
from tests.patience import PATIENCE_S, until

pytestmark = pytest.mark.usefixtures("needs_two_cores")
CORES, SETS = ("cpu:0", "cpu:1"), ("cpu:0", "cpu:1", "cpu:0-1", "cpu:0-1[spinning=1]")


def random_parts(rng: np.random.Generator, count: int, devices: Sequence[str]) -> tuple[list[Part], list[str]]:
    """Parts that each add two earlier values; and the values that no part reads."""
    parts, values, read = list[Part](), ["x"], set[str]()
    for number in range(count):
        first, second = (values[int(index)] for index in rng.integers(max(0, len(values) - 4), len(values), 2))
        inputs = ", ".join(f"float[N] {name}" for name in dict.fromkeys((first, second)))
        text = f"({inputs}) => (float[N] v{number}) {{ v{number} = Add({first}, {second}) }}"
        parts.append(part(text, devices[int(rng.integers(len(devices)))]))
        values.append(f"v{number}")
        read |= {first, second}
    return parts, [name for name in values[1:] if name not in read]


def loop_of(runner: PlacedRunner) -> type:
    return type(runner.devices)


@pytest.mark.parametrize("devices", [CORES, SETS])
@pytest.mark.parametrize("seed", range(6))
def test_outputs_equal_those_of_the_python_loop(devices: Sequence[str], seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts, outputs = random_parts(rng, 25, devices)
    outputs += ["v3"]
    feeds = [{"x": rng.integers(0, 9, 5).astype(np.float32)} for _ in range(20)]
    with (
        PlacedRunner(parts, ["x"], outputs) as threads,
        PlacedRunner(parts, ["x"], outputs, devices_of=python_devices) as python,
    ):
        assert (loop_of(threads), loop_of(python)) == (CompiledDevices, Pipeline)
        expected = [python.run(None, feed) for feed in feeds]
        for found in ([threads.run(None, feed) for feed in feeds], threads.run_many(None, feeds)):
            for row, right in zip(found, expected, strict=True):
                assert all(np.array_equal(one, other) for one, other in zip(row, right, strict=True))
        assert sorted(threads.part_s) == list(range(25))
        assert all(seconds > 0 for seconds in threads.part_s.values())


@pytest.mark.parametrize("dtype", ["float64", "int64", "uint8", "bool", "float16"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 2)])
def test_values_keep_their_element_type_and_shape(dtype: str, shape: tuple[int, ...]) -> None:
    name = {"float64": "double"}.get(dtype, dtype)
    dims = f"[{','.join(map(str, shape))}]" if shape else ""
    texts = [f"({name}{dims} {a}) => ({name}{dims} {b}) {{ {b} = Identity({a}) }}" for a, b in ("ab", "bc")]
    value = np.ones(shape, dtype)
    with PlacedRunner([part(text, device) for text, device in zip(texts, CORES, strict=True)], ["a"], ["c"]) as runner:
        assert loop_of(runner) is CompiledDevices
        (found,) = runner.run(None, {"a": value})
        assert (found.dtype, found.shape) == (value.dtype, value.shape)
        assert np.array_equal(found, value)


@pytest.mark.parametrize("size", [1000, 100_000])  # copied, and in ONNX Runtime's memory
def test_outputs_live_longer_than_their_runner_and_are_no_views_of_each_other(size: int) -> None:
    with PlacedRunner([add_one("a", "b", "cpu:0"), add_one("b", "c", "cpu:1")], ["a"], ["b", "c"]) as runner:
        kept = [runner.run(None, {"a": np.full(size, number, np.float32)}) for number in range(10)]
    del runner
    gc.collect()
    for number, (first, second) in enumerate(kept):
        assert (first == number + 1).all()
        assert (second == number + 2).all()


def test_inputs_change_their_shape_from_request_to_request_and_stay_as_they_are() -> None:
    parts = [part("(float[N] a) => (float[N] b) { b = Neg(a) }", "cpu:0"), add_one("b", "c", "cpu:1")]
    with PlacedRunner(parts, ["a"], ["c"]) as runner:
        for size in (3, 3, 0, 100_000, 3, 5, 1):
            value = np.arange(size, dtype=np.float32)
            (found,) = runner.run(None, {"a": value})
            assert found.tolist() == (1 - value).tolist()
            assert value.tolist() == list(range(size))
            found[:] = 7  # a copy, not the next request's memory
        with pytest.raises(MeasurementFailed, match="Unexpected input data type"):
            runner.run(None, {"a": np.zeros(1, np.float64)})
        assert runner.run(None, {"a": np.zeros(1, np.float32)})[0].tolist() == [1]


@pytest.mark.parametrize("rank", [11, 12, 13])  # more dimensions than compiled code tells
def test_an_output_has_any_number_of_dimensions(rank: int) -> None:
    sizes = "float[" + ",".join(["1"] * rank) + "]"
    texts = [f"({sizes} {a}) => ({sizes} {b}) {{ {b} = Identity({a}) }}" for a, b in ("ab", "bc")]
    with PlacedRunner([part(text, device) for text, device in zip(texts, CORES, strict=True)], ["a"], ["c"]) as runner:
        assert runner.run(None, {"a": np.full((1,) * rank, 4, np.float32)})[0].shape == (1,) * rank


@pytest.mark.parametrize(
    "text",
    [
        "(string[N] a) => (string[N] b) { b = Identity(a) }",
        "(float[N] a) => (seq(float[N]) b) { b = SequenceConstruct(a) }",
        "(bfloat16[N] a) => (bfloat16[N] b) { b = Identity(a) }",
    ],
)
def test_parts_with_other_values_than_tensors_of_numbers_run_in_the_python_loop(text: str) -> None:
    with PlacedRunner([part(text, "cpu:0"), add_one("x", "y", "cpu:1")], ["a", "x"], ["b", "y"]) as runner:
        assert loop_of(runner) is Pipeline


def test_a_request_with_run_options_runs_in_the_python_loop() -> None:
    options = ort.RunOptions()
    with PlacedRunner([add_one("a", "b", "cpu:0"), add_one("b", "c", "cpu:1")], ["a"], ["c"]) as runner:
        assert runner.run(None, {"a": np.zeros(2, np.float32)}, options)[0].tolist() == [2, 2]
        options.terminate = True
        with pytest.raises(MeasurementFailed, match="part 'a->b' failed on 'cpu:0'"):
            runner.run(None, {"a": np.zeros(2, np.float32)}, options)
        assert runner.run(None, {"a": np.zeros(2, np.float32)})[0].tolist() == [2, 2]


def test_a_failing_part_is_named_and_the_next_request_works() -> None:
    reshape = part("(float[N] b) => (float[3] c) <int64[1] three = {3}> { c = Reshape(b, three) }", "cpu:1")
    parts = [add_one("a", "b", "cpu:0"), reshape, add_one("c", "d", "cpu:0"), add_one("b", "e", "cpu:0")]
    with PlacedRunner(parts, ["a"], ["d", "e"]) as runner:
        for size in (3, 2, 3, 4, 3):
            feed = {"a": np.zeros(size, np.float32)}
            if size == 3:
                assert runner.run(None, feed)[0].tolist() == [2, 2, 2]
            else:
                with pytest.raises(MeasurementFailed, match=r"part 'b->c' failed on 'cpu:1': .*Reshape"):
                    runner.run(None, feed)
        with pytest.raises(MeasurementFailed, match="'a' has the element type"):
            runner.run(None, {"a": np.zeros(3, np.complex64)})
        assert not runner.devices._under_way


def test_of_two_parts_that_fail_in_one_request_one_is_named() -> None:
    parts = [
        part(f"(float[N] a) => (float[3] {name}) <int64[1] three = {{3}}> {{ {name} = Reshape(a, three) }}", device)
        for name, device in (("b", "cpu:0"), ("c", "cpu:1"))
    ]
    with PlacedRunner(parts, ["a"], ["b", "c"]) as runner:
        for _ in range(50):
            with pytest.raises(MeasurementFailed, match=r"part 'a->[bc]' failed on 'cpu:[01]': .*Reshape"):
                runner.run(None, {"a": np.zeros(2, np.float32)})
        assert runner.run(None, {"a": np.ones(3, np.float32)})[1].tolist() == [1, 1, 1]


def test_requests_from_many_threads_beside_a_thread_that_never_yields() -> None:
    parts = [add_one(f"v{i}", f"v{i + 1}", SETS[i % len(SETS)]) for i in range(8)]
    over, wrong = threading.Event(), list[float]()

    def busy() -> None:
        while not over.is_set():
            pass

    def call(number: int) -> None:
        for request in range(150):
            value = 1000 * number + request
            (found,) = runner.run(None, {"v0": np.full(2, value, np.float32)})
            if found.tolist() != [value + 8] * 2:
                wrong.append(value)

    with PlacedRunner(parts, ["v0"], ["v8"]) as runner:
        threads = [threading.Thread(target=busy), *(threading.Thread(target=call, args=(n,)) for n in range(8))]
        for thread in threads:
            thread.start()
        for thread in threads[1:]:
            thread.join()
        over.set()
        threads[0].join()
        assert not runner.devices._under_way
        assert not runner.devices._shared.values.any()  # no tensor is left
        assert (runner.devices._shared.uses >= 0).all()
    assert wrong == []


@pytest.mark.parametrize("devices_of", [None, python_devices])
def test_ten_thousand_requests_from_eight_threads_leave_nothing_behind(devices_of: DevicesOf | None) -> None:
    def held() -> tuple[int, int, int]:
        gc.collect()
        lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return int(lines["VmRSS"].split()[0]), int(lines["Threads"]), len(os.listdir("/proc/self/fd"))

    def call(number: int, count: int) -> None:
        feeds = [{"a": np.full(10_000, 1000 * number + request, np.float32)} for request in range(50)]
        for first in range(0, count, len(feeds)):
            kind = (first // len(feeds) + number) % 3
            if kind == 0:
                found = [runner.run(None, feed) for feed in feeds]
            elif kind == 1:
                found = list(runner.run_many(None, feeds))
            else:
                found = [future.result() for future in [runner.submit(None, feed) for feed in feeds]]
            right.append(all((value == feed["a"] + 3).all() for (value,), feed in zip(found, feeds, strict=True)))

    def from_eight_threads(count: int) -> None:
        threads = [threading.Thread(target=call, args=(number, count // 8)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    right = list[bool]()
    parts = [add_one("a", "b", "cpu:0"), add_one("b", "c", "cpu:0-1"), add_one("c", "d", "cpu:1")]
    with PlacedRunner(parts, ["a"], ["d"], devices_of=devices_of) as runner:
        from_eight_threads(2_000)
        before = held()
        from_eight_threads(10_000)  # of 40 kB per value
        after = held()
    assert after[1:] == before[1:]
    assert after[0] - before[0] < 20_000  # KiB
    assert right == [True] * 240


@pytest.mark.parametrize("devices_of", [None, python_devices])
def test_a_stream_whose_reader_is_busy_keeps_no_other_caller_waiting(devices_of: DevicesOf | None) -> None:
    found = list[Any]()

    def read() -> None:
        feeds = [{"a": np.full(2, number, np.float32)} for number in range(40)]
        streams = [runner.run_many(None, feeds) for _ in range(2)]
        found.append([[next(stream)[0][0] for stream in streams] for _ in range(10)])  # both fill all slots
        found.append(runner.run(None, feeds[7])[0].tolist())
        found.append([sum(float(value[0]) for (value,) in stream) for stream in streams])

    with PlacedRunner(
        [add_one("a", "b", "cpu:0"), add_one("b", "c", "cpu:1")], ["a"], ["c"], devices_of=devices_of
    ) as runner:
        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert found == [[[number + 2.0] * 2 for number in range(10)], [9.0, 9.0], [sum(range(12, 42))] * 2]


@pytest.mark.parametrize("count", [1, 3])
def test_closing_ends_requests_under_way(count: int) -> None:
    slow = [part("(float[N,N] v0) => (float[N,N] v1) { v1 = MatMul(v0, v0) }", "cpu:0")]
    slow += [part(f"(float[N,N] v{i}) => (float[N,N] v{i + 1}) {{ v{i + 1} = MatMul(v{i}, v{i}) }}", CORES[i % 2]) for i in range(1, 40)]  # fmt: skip
    runner = PlacedRunner(slow, ["v0"], ["v40"])
    feed, ended = {"v0": np.zeros((400, 400), np.float32)}, list[str]()

    def call() -> None:
        try:
            runner.run(None, feed)
        except (MeasurementFailed, InvalidInput) as error:
            ended.append(str(error))

    threads = [threading.Thread(target=call) for _ in range(count)]
    for thread in threads:
        thread.start()
    until(lambda: len(runner.devices._under_way) == count)
    runner.close()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert ended == ["the runner was closed before the request was done"] * count


def test_an_interrupted_caller_leaves_the_runner_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    with PlacedRunner([add_one("a", "b", "cpu:0"), add_one("b", "c", "cpu:1")], ["a"], ["c"]) as runner:
        feed = {"a": np.zeros(2, np.float32)}

        def interrupt(*arguments: Any) -> int:
            if threading.current_thread() is threading.main_thread():
                raise KeyboardInterrupt
            return serve_until(*arguments)

        for _ in range(10):  # more than there are slots
            with monkeypatch.context() as patched:
                patched.setattr(compiled, "serve_until", interrupt)
                with pytest.raises(KeyboardInterrupt):
                    runner.run(None, feed)
        assert runner.run(None, feed)[0].tolist() == [2, 2]


def test_inputs_that_cannot_be_handed_over_leave_the_runner_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    with PlacedRunner([add_one("a", "b", "cpu:0"), add_one("b", "c", "cpu:1")], ["a"], ["c"]) as runner:

        def fail(*arguments: Any) -> None:
            raise MemoryError

        for _ in range(10):  # more than there are slots
            with monkeypatch.context() as patched:
                patched.setattr(runner.devices._values, "put", fail)
                with pytest.raises(MemoryError):
                    runner.run(None, {"a": np.zeros(2, np.float32)})
        assert runner.run(None, {"a": np.zeros(2, np.float32)})[0].tolist() == [2, 2]


def test_a_waiting_caller_does_the_work_of_the_thread_that_ends_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    def serve_others(program: Program, shared: Shared, thread: int) -> None:
        if thread != program.lent:
            serve(program, shared, thread)

    monkeypatch.setattr(compiled, "serve", serve_others)
    monkeypatch.setattr(compiled, "compile_for", lambda *arguments: None)  # the stand-in is plain Python
    chain = [add_one("a", "b", "cpu:1"), add_one("b", "c", "cpu:0"), add_one("c", "d", "cpu:1")]
    for parts in (chain, chain[:2]):  # it ends on either core
        with PlacedRunner(parts, ["a"], [parts[-1].outputs[0]]) as runner:
            for number in range(20):
                (found,) = runner.run(None, {"a": np.full(2, number, np.float32)})
                assert found.tolist() == [number + len(parts)] * 2


def test_callers_take_turns_with_the_thread_whose_work_they_do() -> None:
    with PlacedRunner([add_one("a", "b", "cpu:0"), add_one("b", "c", "cpu:1")], ["a"], ["c"]) as runner:
        found = list[float]()

        def call(first: int) -> None:
            for number in range(first, first + 200):
                ((value, _),) = runner.run(None, {"a": np.full(2, number, np.float32)})
                found.append(float(value) - number)

        threads = [threading.Thread(target=call, args=(1000 * index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        found += [
            row[0][0] - 2 * index
            for index, row in enumerate(
                runner.run_many(None, ({"a": np.full(2, 2 * i, np.float32)} for i in range(400)))
            )
        ]
        for thread in threads:
            thread.join(PATIENCE_S)
        assert not any(thread.is_alive() for thread in threads)
        assert found == [2.0] * 1200


def test_a_caller_that_is_pinned_elsewhere_stays_there() -> None:
    with PlacedRunner([add_one("a", "b", "cpu:0"), add_one("b", "c", "cpu:1")], ["a"], ["c"]) as runner:
        for core in (0, 1):
            with pinned_to({core}):
                assert runner.devices._can_lend() == (core == 1)
                assert runner.run(None, {"a": np.zeros(2, np.float32)})[0].tolist() == [2, 2]
                assert os.sched_getaffinity(0) == {core}


def test_a_caller_that_sleeps_while_another_thread_computes_notices_ctrl_c() -> None:
    text = """(float[2] a) => (float[2] b) <int64 trips = {1000000}, bool go = {1}>
        { b = Loop (trips, go, a) <body = l (int64 i, bool on, float[2] s) => (bool still, float[2] t)
          { still = Identity(on)  t = Cos(s) }> }"""
    with PlacedRunner([part(text, "cpu:0"), add_one("b", "c", "cpu:1")], ["a"], ["c"]) as runner:
        feed, main = {"a": np.zeros(2, np.float32)}, threading.main_thread().ident
        runner.run(None, feed)

        def interrupt(delay_s: float) -> None:
            until(lambda: runner.devices._under_way)
            time.sleep(delay_s)
            signal.pthread_kill(main, signal.SIGINT)

        for delay_s in (0.01, 0.1):  # before and after the caller has looked for a signal once
            until(lambda: not runner.devices._under_way)
            threading.Thread(target=interrupt, args=(delay_s,)).start()
            with pytest.raises(KeyboardInterrupt):
                runner.run(None, feed)
            assert runner.devices._under_way  # the other thread is not done
        assert runner.run(None, feed)[0].shape == (2,)


_FIRST_REQUESTS = """
import numpy as np
from numba.core import event
from gnnplace.running.runner import PlacedRunner
from tests.parts import add_one

with PlacedRunner([add_one("a", "b", "cpu:0"), add_one("b", "c", "cpu:1")], ["a"], ["c"]) as runner:
    with event.install_recorder("numba:compiler_lock") as recorder:
        feeds = [{"a": np.zeros(2, np.float32)}, {"a": np.zeros(9999, np.float32)}]
        found = [runner.run(None, feed)[0][0] for feed in feeds] + [row[0][0] for row in runner.run_many(None, feeds)]
    print(type(runner.devices).__name__, found == [2, 2, 2, 2], len(recorder.buffer))
"""


def test_the_first_requests_of_a_process_compile_nothing_and_load_nothing_compiled() -> None:
    shown = subprocess.run([sys.executable, "-c", _FIRST_REQUESTS], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["CompiledDevices", "True", "0"]


@pytest.mark.parametrize("devices", [CORES, CORES[:1] * 2])
@pytest.mark.parametrize("devices_of", [None, python_devices])
def test_an_error_of_onnx_runtime_is_raised_and_not_logged_as_well(
    devices: Sequence[str], devices_of: DevicesOf | None, capfd: pytest.CaptureFixture[str]
) -> None:
    texts = [f"(float[N] {a}) => (float[M] {b}) {{ s = Shape({a})  {b} = Tile({a}, s) }}" for a, b in ("ab",)]
    texts.append("(float[N] a, float[M] b) => (float[K] c) { c = Add(a, b) }")
    parts = [part(text, device) for text, device in zip(texts, devices, strict=True)]
    chosen = {} if devices_of is None else {"devices_of": devices_of}
    failure = pytest.raises(MeasurementFailed, match=r"part 'a\+b->c' failed on 'cpu:\d'")
    with PlacedRunner(parts, ["a"], ["c"], **chosen) as runner, failure:  # type: ignore[arg-type]
        runner.run(None, {"a": np.ones(3, np.float32)})
    assert capfd.readouterr().err == ""

"""A placed model on two hosts has the outputs of one machine, even if processes and hosts are lost."""

import json
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gnnplace.distributed import execution
from gnnplace.distributed.execution import DistributedSession
from gnnplace.errors import InvalidInput, InvalidTopology, MeasurementFailed, ProcessLost
from gnnplace.onnx_io.manifest import write_parts
from gnnplace.onnx_io.model import STATE_KEY, OnnxModel
from gnnplace.onnx_io.read import read_onnx
from gnnplace.onnx_io.sample_inputs import sample_inputs
from gnnplace.onnx_io.segments import segments
from gnnplace.placement import scattered
from gnnplace.running.session import PARTS, Session
from models_zoo.networks.light import write_light_model

HOSTS = ("host1/cpu:0", "host2/cpu:0")
LOCAL = ("cpu:0", "cpu:1")
# Two seconds of work in the middle, unless `n` is small.
SLOW = """<ir_version: 8, opset_import: ["": 17]>
    g (float[8] x, int64 n) => (float[8] y)
    <bool go = {1}>
    { a = Neg(x)
      b = Loop (n, go, a) <body = l (int64 i, bool on, float[8] s) => (bool still, float[8] t)
            { still = Identity(on)  r = Sin(s)  t = Cos(r) }>
      y = Neg(b) }"""


def save(model: OnnxModel, assignment: Any, devices: tuple[str, ...], folder: Path) -> Path:
    found = segments(model.graph, assignment, model.graph.topological_order)
    write_parts(model, found, devices, folder / PARTS)
    return folder


@pytest.fixture
def slow(onnx_model: Callable[..., OnnxModel], tmp_path: Path) -> Path:
    """On host2 while it computes."""
    return save(onnx_model(SLOW), [0, 1, 0], HOSTS, tmp_path / "slow")


def slow_feed(trips: int) -> dict[str, Any]:
    return {"x": np.arange(8, dtype=np.float32), "n": np.array(trips)}


def kill_process_on(session: DistributedSession, host: str) -> None:
    """The process that runs the parts of a host."""
    devices = session._runner.devices
    os.kill(devices._facts[host].pid, signal.SIGKILL)


def test_a_network_on_two_hosts_has_the_local_outputs_bit_for_bit(cluster: Any, tmp_path: Path) -> None:
    write_light_model("squeezenet", tmp_path / "squeezenet.onnx")
    model = read_onnx(tmp_path / "squeezenet.onnx")
    assignment = scattered(model.graph, 2, np.random.default_rng(0))
    feeds = [sample_inputs(model, np.random.default_rng(seed)) for seed in range(6)]
    with Session(save(model, assignment, LOCAL, tmp_path / "local")) as session:
        expected = [session.run(None, feed) for feed in feeds]
    with DistributedSession(save(model, assignment, HOSTS, tmp_path / "hosts"), cluster.address) as session:
        assert session.get_devices() == list(HOSTS)
        assert session.get_providers() == ["CPUExecutionProvider"]
        found = [session.run(None, feed) for feed in feeds[:2]]
        found += session.run_many(None, feeds[2:4])
        with ThreadPoolExecutor(2) as callers:
            found += callers.map(lambda feed: session.run(None, feed), feeds[4:])
    for outputs, wanted in zip(found, expected, strict=True):
        for output, array in zip(outputs, wanted, strict=True):
            np.testing.assert_array_equal(output, array)
            assert output.flags.writeable


def test_a_killed_process_restarts_and_its_requests_are_answered_once(
    cluster: Any, slow: Path, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[Any] = []
    with DistributedSession(slow, cluster.address) as session:
        expected = session.run(None, slow_feed(3_000))[0]
        futures = [session.submit(None, slow_feed(trips)) for trips in (400_000, 3_000)]
        for future in futures:
            future.add_done_callback(lambda ended: answers.append(ended.result()[0]))
        time.sleep(0.3)
        kill_process_on(session, "host2")
        futures[-1].result(120)
        third = session.run(None, slow_feed(3_000))[0]
        long = session.run(None, slow_feed(400_000))[0]
    (logged,) = [record.getMessage() for record in caplog.records if record.name == execution.__name__]
    assert logged.startswith("host2/cpu:0: lost")
    assert "2 requests" in logged
    assert len(answers) == 2
    np.testing.assert_array_equal(answers, [long, expected])
    np.testing.assert_array_equal(third, expected)


def test_a_request_that_ends_its_process_every_time_fails(
    cluster: Any, slow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "_TRIES", 1)
    with DistributedSession(slow, cluster.address) as session:
        future = session.submit(None, slow_feed(400_000))
        time.sleep(0.3)
        kill_process_on(session, "host2")
        with pytest.raises(ProcessLost, match="host2/cpu:0: lost"):
            future.result(60)
        assert session.run(None, slow_feed(3))[0].shape == (8,)


def test_every_request_fails_at_once_when_a_host_is_lost(
    cluster: Any, third_host: Any, onnx_model: Callable[..., OnnxModel], tmp_path: Path
) -> None:
    model = onnx_model(SLOW)
    placed = save(model, [0, 1, 0], ("host1/cpu:0", "host3/cpu:0"), tmp_path / "placed")
    with DistributedSession(placed, cluster.address) as session:
        future = session.submit(None, slow_feed(2_000_000))
        time.sleep(0.3)
        cluster.remove(third_host, at_once=True)
        with pytest.raises(ProcessLost, match="the host 'host3' is gone, and with it host3/cpu:0"):
            future.result(60)
        with pytest.raises(ProcessLost, match="the host 'host3' is gone"):
            session.run(None, slow_feed(3))


def test_state_stays_on_its_host_from_step_to_step(
    cluster: Any, onnx_model: Callable[..., OnnxModel], tmp_path: Path
) -> None:
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[40000] x, float[40000] w, float[40000] v) => (float[40000] y, float[40000] w_new, float[40000] v_new)
        { w_new = Add(w, x)  v_new = Mul(w_new, v)  y = Sub(v_new, x) }""")
    proto.metadata_props.add(key=STATE_KEY, value=json.dumps({"w": "w_new", "v": "v_new"}))
    model = onnx_model(proto)
    state = {"w": np.arange(40000, dtype=np.float32), "v": np.full(40000, 2, np.float32)}
    outcomes = []
    for kind, devices in ((Session, LOCAL), (lambda path: DistributedSession(path, cluster.address), HOSTS)):
        with kind(save(model, [0, 1, 0], devices, tmp_path / devices[1].replace("/", "-"))) as session:
            loop = session.training_loop(state)
            losses = [loop.step({"x": np.full(40000, step, np.float32)})[0] for step in range(4)]
            if devices is HOSTS:
                kill_process_on(session, "host2")
            losses.append(loop.step({"x": np.ones(40000, np.float32)})[0])
            outcomes.append([*losses, *loop.state().values()])
    for here, there in zip(*outcomes, strict=True):
        np.testing.assert_array_equal(here, there)


def test_wrong_inputs_are_refused_as_in_a_local_session(cluster: Any, slow: Path) -> None:
    import onnxruntime as ort

    with DistributedSession(slow, cluster.address) as session:
        with pytest.raises(InvalidInput, match="the model input 'n' is missing; given are x"):
            session.run(None, {"x": np.zeros(8, np.float32)})
        with pytest.raises(InvalidInput, match="run options do not travel to other hosts"):
            session.run(None, slow_feed(1), ort.RunOptions())
        assert session.run(["y"], slow_feed(1))[0].dtype == np.float32
    with pytest.raises(InvalidInput, match="the runner is closed"):
        session.run(None, slow_feed(1))


def test_the_error_of_a_failed_part_names_its_device_and_the_session_stays_usable(
    cluster: Any, onnx_model: Callable[..., OnnxModel], tmp_path: Path
) -> None:
    model = onnx_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[N] x, int64[M] shape) => (float[K] y) { a = Neg(x)  b = Reshape(a, shape)  y = Neg(b) }""")
    with DistributedSession(save(model, [0, 1, 0], HOSTS, tmp_path / "placed"), cluster.address) as session:
        with pytest.raises(MeasurementFailed, match="failed on 'host2/cpu:0'"):
            session.run(None, {"x": np.zeros(4, np.float32), "shape": np.array([5])})
        assert session.run(None, {"x": np.ones(4, np.float32), "shape": np.array([4])})[0].tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        (("cpu:0", "cpu:1"), "device 'cpu:0' names no host; without a cluster gnnplace.Session"),
        (("host1/cpu:0", "host9/cpu:0"), "device 'host9/cpu:0': the cluster has no host 'host9', but host1, host2"),
        (("host1/cpu:0", "host2/cpu:99"), "device 'host2/cpu:99': core 99 is not available"),
    ],
)
def test_missing_devices_are_refused_in_one_line(
    cluster: Any, small_model: Callable[[str], OnnxModel], tmp_path: Path, devices: tuple[str, ...], message: str
) -> None:
    placed = save(small_model("chain"), [0, 1, 0, 1], devices, tmp_path / "placed")
    with pytest.raises(InvalidTopology, match=message):
        DistributedSession(placed, cluster.address)


def test_devices_of_other_hosts_do_not_run_without_a_cluster(
    small_model: Callable[[str], OnnxModel], tmp_path: Path
) -> None:
    with pytest.raises(InvalidTopology, match="device 'host1/cpu:0' is on the host 'host1'; name its cluster by --ray"):
        Session(save(small_model("chain"), [0, 1, 0, 1], HOSTS, tmp_path / "placed"))

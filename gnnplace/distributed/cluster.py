"""The priority of processes that Ray starts: Ray makes its workers yield to everything else on a host."""

from __future__ import annotations

import importlib.util
import logging
import os
import platform
import re
import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnplace.devices.detect import machine_facts
from gnnplace.errors import GnnplaceError, MissingDependency
from gnnplace.versions import installed_versions

__all__ = [
    "Host",
    "Node",
    "connected",
    "different_results",
    "different_seconds",
    "host_options",
    "hosts",
    "machine_fingerprint",
    "nodes",
    "require_ray",
    "take_usual_priority",
]


def take_usual_priority() -> bool:
    """Gives every thread of this process the priority of a program that was started by hand; whether that was allowed.

    Only who may raise priorities can: others start Ray with RAY_worker_niceness=0. Threads that are begun later inherit it.
    """
    with suppress(OSError):  # no permission, a thread that has just ended, or a system that counts no threads there
        for thread in Path("/proc/self/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), 0)
        return True
    return False


_TOKEN_HINT = (
    "; where Ray says that a token is missing, set RAY_AUTH_MODE=token, with the cluster's token in ~/.ray/auth_token"
)
_names_of_cluster: set[str] = set()
"""What this process calls the cluster that it is connected to; Ray itself has another name for 127.0.0.1."""
_KNOCK_S = 5.0
_HTTP2_SETTINGS = b"\x04"  # the type of a frame, with which every server of gRPC answers
_HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0" + _HTTP2_SETTINGS + b"\0\0\0\0\0"
_COMPUTES = ("gnnplace", "numpy", "numba", "torch", "dgl")
_VERSIONED = (
    "gnnplace",
    "numpy",
    "numba",
    "onnx",
    "onnxruntime",
    "onnxruntime-gpu",
    "onnxruntime-openvino",
    "torch",
    "dgl",
)


@dataclass(frozen=True)
class Node:
    """A machine of the cluster, or one of several raylets of a machine."""

    name: str
    """Its Ray node name; where it was given none, its address."""
    node_id: str
    cores: int
    """That Ray may use there."""


@dataclass(frozen=True)
class Host(Node):
    """The same with what it is."""

    fingerprint: dict[str, Any]
    """What seconds that are measured there depend on; see `machine_fingerprint`."""


@contextmanager
def connected(address: str) -> Iterator[None]:
    """A connection to a cluster within the block; inside a block of the same process it is the one that is there already.

    Args:
        address: HOST:PORT of the head node; `auto`, the cluster that runs on this machine, or where there is none, this
            machine alone; or `local`, always this machine alone.

    Raises:
        MissingDependency: Ray is not installed.
        GnnplaceError: there is no cluster at the address, or one of another version.
    """
    require_ray()
    import ray

    if ray.is_initialized():
        known = ray.get_runtime_context().gcs_address
        if address not in {"auto", "local", known, *_names_of_cluster}:
            raise GnnplaceError(f"--ray {address}: this process is connected to {known} already; disconnect first")
        yield
        return
    if address not in ("auto", "local"):
        _knock(address)
    try:
        _connect(address)
        _names_of_cluster.add(address)
        yield
    finally:
        _names_of_cluster.clear()
        ray.shutdown()


def nodes() -> tuple[Node, ...]:
    """The hosts that are alive, by name, the numbers in names as numbers; several of one name are told apart by their ids."""
    import ray

    alive = [node for node in ray.nodes() if node["Alive"]]
    names = [str(node["NodeName"] or node["NodeManagerAddress"]) for node in alive]
    shared = Counter(names)
    found = [
        Node(
            name if shared[name] == 1 else f"{name}-{node['NodeID'][:6]}",
            node["NodeID"],
            int(node["Resources"].get("CPU", 0)),
        )
        for name, node in zip(names, alive, strict=True)
    ]
    return tuple(sorted(found, key=lambda node: _by_number(node.name)))


def hosts() -> tuple[Host, ...]:
    """The same with what they are, which a worker of each is asked."""
    import ray

    alive, ask = nodes(), ray.remote(machine_fingerprint)
    asked = [ask.options(**host_options(node.node_id), num_cpus=0, max_retries=1).remote() for node in alive]
    found = []
    for node, reference in zip(alive, asked, strict=True):
        with suppress(ray.exceptions.RayError):  # it was lost a moment ago
            found.append(Host(node.name, node.node_id, node.cores, ray.get(reference)))
    return tuple(found)


def host_options(node_id: str) -> dict[str, Any]:
    """The options of a task or an actor that runs on this host and nowhere else."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node_id=node_id, soft=False)}


def machine_fingerprint() -> dict[str, Any]:
    """What figures that are made on this machine depend on: its devices, Python, and the libraries that take part."""
    return {**machine_facts(), "python": platform.python_version(), **installed_versions(*_VERSIONED)}


def different_results(fingerprint: Mapping[str, Any]) -> str:
    """Why a host may compute other figures than this process, from the same numbers; empty where it does not."""
    return _difference(fingerprint, _COMPUTES)


def different_seconds(fingerprint: Mapping[str, Any]) -> str:
    """Why what takes some seconds on a host may take others on this machine; empty where machine and versions are alike."""
    return _difference(fingerprint, sorted(machine_fingerprint().keys() | fingerprint.keys()))


def _difference(there: Mapping[str, Any], names: Iterable[str]) -> str:
    here = machine_fingerprint()
    return ", ".join(
        f"{name} is {there.get(name, 'not there')}, here {here.get(name, 'not there')}"
        for name in names
        if there.get(name) != here.get(name)
    )


def require_ray() -> None:
    """Says what to install.

    Raises:
        MissingDependency: Ray is not installed.
    """
    if importlib.util.find_spec("ray") is None:
        raise MissingDependency('work on many machines needs Ray, which is not installed: pip install "gnnplace[ray]"')


def _connect(address: str) -> None:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # GPUs stay visible; what Ray will do in future
    try:
        try:
            _init(address)
        except ConnectionError:
            if address != "auto":
                raise
            _init("local")
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        asked = "" if os.environ.get("RAY_AUTH_MODE") == "token" else _TOKEN_HINT
        raise GnnplaceError(f"--ray {address}: {error}{asked}") from None


def _init(address: str) -> None:
    import ray

    dashboard = False if address == "local" else None
    ray.init(address=address, include_dashboard=dashboard, log_to_driver=False, logging_level=logging.ERROR)


def _knock(address: str) -> None:
    """Ray itself waits for minutes where nobody answers.

    Raises:
        GnnplaceError: nobody answers, or the address is none.
    """
    match = re.fullmatch(r"\[?([^\s\[\]/]+?)\]?:(\d{1,5})", address)
    if match is None or not 0 < int(match[2]) < 2**16:
        raise GnnplaceError(
            f"--ray {address}: expected HOST:PORT of a cluster's head node, for example 10.0.0.1:6379, auto or local"
        )
    try:
        with socket.create_connection((match[1], int(match[2])), timeout=_KNOCK_S) as connection:
            connection.sendall(_HTTP2_GREETING)
            answer = connection.recv(9)
    except TimeoutError:
        answer = b""
    except OSError as error:
        raise GnnplaceError(
            f"--ray {address}: no cluster answers there ({error.strerror or error}); "
            "ray start --head --port=6379 begins one on its first host"
        ) from None
    if answer[3:4] != _HTTP2_SETTINGS:
        raise GnnplaceError(
            f"--ray {address}: what answers there is no Ray cluster; ray status says the address of one"
        )


def _by_number(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]

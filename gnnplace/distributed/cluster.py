"""The connection to a Ray cluster, its hosts, and the versions that decide whether a host takes part."""

import importlib.util
import logging
import os
import platform
import re
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnplace.devices.detect import machine_facts
from gnnplace.errors import GnnplaceError, MissingDependency
from gnnplace.versions import installed_versions


def take_usual_priority() -> None:
    """Gives this process's threads, and those they start, the priority of a program started by hand, where it may.

    Ray gives its workers a low priority. Only privileged users can raise it; others start Ray with RAY_worker_niceness=0.
    """
    with suppress(OSError):  # no permission, a thread that has just ended, or a system without /proc
        for thread in Path("/proc/self/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), 0)


RESTART_RETRIES = 20
"""Retries of a call to an actor that Ray restarts, as calls fail until the restart is complete."""
_TOKEN_HINT = (
    "; where Ray reports a missing token, set RAY_AUTH_MODE=token, with the cluster's token in ~/.ray/auth_token"
)
_names_of_cluster: set[str] = set()
"""Addresses by which this process connected to its cluster; Ray itself has another name for 127.0.0.1."""
_CONNECT_S, _ANSWER_S = 5.0, 30.0
_ABSENT = "not there"
_COMPUTING = ("gnnplace", "numpy", "numba", "torch", "dgl")
_VERSIONED = (*_COMPUTING, "onnx", "onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino")


@dataclass(frozen=True)
class Node:
    """A machine of the cluster, or one of several raylets of a machine."""

    name: str
    """Ray's node name, or the address of an unnamed node."""
    node_id: str
    cores: int
    """Cores that Ray may use."""
    gpus: int
    """GPUs that Ray may use."""


@dataclass(frozen=True)
class Host(Node):
    """A node with its fingerprint."""

    fingerprint: dict[str, Any]
    """Facts on which measured seconds depend; see `machine_fingerprint`."""


@contextmanager
def connected(address: str) -> Iterator[None]:
    """A connection to a cluster within the block; a nested block shares the connection of the outer one.

    Args:
        address: HOST:PORT of the head node; `auto`, the cluster that runs on this machine, or a new one of this machine
            alone; or `local`, always this machine alone.

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
        _check_reachable(address)
    try:
        _init(address)
        _names_of_cluster.add(address)
        yield
    finally:
        _names_of_cluster.clear()
        ray.shutdown()


def nodes() -> tuple[Node, ...]:
    """The live nodes, sorted by name with numbers by value; nodes of the same name get their ids appended."""
    import ray

    alive = [node for node in ray.nodes() if node["Alive"]]
    names = [str(node["NodeName"] or node["NodeManagerAddress"]) for node in alive]
    shared = Counter(names)
    found = []
    for name, node in zip(names, alive, strict=True):
        unique = name if shared[name] == 1 else f"{name}-{node['NodeID'][:6]}"
        cores, gpus = (int(node["Resources"].get(kind, 0)) for kind in ("CPU", "GPU"))
        found.append(Node(unique, node["NodeID"], cores, gpus))
    return tuple(sorted(found, key=lambda node: _by_number(node.name)))


def hosts() -> tuple[Host, ...]:
    """The live nodes with their fingerprints."""
    import ray

    alive, task = nodes(), ray.remote(machine_fingerprint)
    references = [task.options(**host_options(node.node_id), num_cpus=0, max_retries=1).remote() for node in alive]
    found = []
    for node, reference in zip(alive, references, strict=True):
        with suppress(ray.exceptions.RayError):  # the node was lost a moment ago
            found.append(Host(node.name, node.node_id, node.cores, node.gpus, ray.get(reference)))
    return tuple(found)


def host_options(node_id: str) -> dict[str, Any]:
    """Ray's options of a task or an actor that runs on this host alone."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node_id=node_id, soft=False)}


def machine_fingerprint() -> dict[str, Any]:
    """Facts of this machine on which measured seconds depend: its devices, Python, and versions of libraries."""
    return {**machine_facts(), "python": platform.python_version(), **installed_versions(*_VERSIONED)}


def different_results(there: Mapping[str, Any]) -> str:
    """The differences for which a host may compute other results than this process; empty where there are none."""
    return different_seconds({**machine_fingerprint(), **{name: there.get(name, _ABSENT) for name in _COMPUTING}})


def different_seconds(there: Mapping[str, Any]) -> str:
    """The differences for which a host may take other seconds than this machine; empty where there are none."""
    here = machine_fingerprint()
    pairs = {name: (there.get(name, _ABSENT), here.get(name, _ABSENT)) for name in sorted(here.keys() | there.keys())}
    return ", ".join(f"{name} is {other}, here {own}" for name, (other, own) in pairs.items() if other != own)


def require_ray() -> None:
    """Checks that Ray is installed.

    Raises:
        MissingDependency: Ray is not installed.
    """
    if importlib.util.find_spec("ray") is None:
        raise MissingDependency('work on many machines needs Ray, which is not installed: pip install "gnnplace[ray]"')


def last_line(error: Exception) -> str:
    """The last line of an error of Ray, which names the cause."""
    return str(error).strip().rpartition("\n")[2].strip()


def _init(address: str) -> None:
    import ray

    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # GPUs stay visible; Ray's future default
    dashboard = False if address == "local" else None
    try:
        ray.init(address=address, include_dashboard=dashboard, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray's have no class in common; a node that does not start in time is a plain one
        if address == "auto" and isinstance(error, ConnectionError):
            _init("local")
            return
        hint = "" if os.environ.get("RAY_AUTH_MODE") == "token" else _TOKEN_HINT
        raise GnnplaceError(f"--ray {address}: {error}{hint}") from None


def _check_reachable(address: str) -> None:
    """Checks in a child process that a cluster answers; `ray.init` retries for a minute and then ends the process."""
    match = re.fullmatch(r"\[?([^\s\[\]/]+?)\]?:(\d{1,5})", address)
    if match is None or not 0 < int(match[2]) < 2**16:
        raise GnnplaceError(
            f"--ray {address}: expected HOST:PORT of a cluster's head node, for example 10.0.0.1:6379, auto or local"
        )
    status = [sys.executable, "-m", "ray.scripts.scripts", "status", f"--address={address}"]
    try:
        socket.create_connection((match[1], int(match[2])), timeout=_CONNECT_S).close()
        subprocess.run(status, capture_output=True, timeout=_ANSWER_S, check=False)  # `ray.init` reports its errors
    except subprocess.TimeoutExpired:
        raise GnnplaceError(
            f"--ray {address}: no Ray cluster answers there within {_ANSWER_S:.0f} s; is it the head node's HOST:PORT?"
        ) from None
    except OSError as error:
        raise GnnplaceError(
            f"--ray {address}: no cluster answers there ({error.strerror or error}); "
            "ray start --head --port=6379 starts one on its first host"
        ) from None


def _by_number(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]

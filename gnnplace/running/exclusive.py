"""Devices that share cores or multiprocessors: which exclude each other, and who computes next."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Lock

from gnnplace.devices.detect import occupied
from gnnplace.devices.real_names import parse_real


def rivals_of(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """For each device that shares a resource with others of the set, the names of these.

    >>> rivals_of(["cpu:0", "cpu:1", "cpu:0-1", "cpu:2"])
    {'cpu:0': ('cpu:0-1',), 'cpu:1': ('cpu:0-1',), 'cpu:0-1': ('cpu:0', 'cpu:1')}

    Raises:
        InvalidTopology: a name stands for no real device.
    """
    reals = [parse_real(name) for name in names]
    used = {real.name: {*occupied(real, reals)} for real in reals}
    found = {
        name: tuple(other for other in used if other != name and resources & used[other])
        for name, resources in used.items()
    }
    return {name: others for name, others in found.items() if others}


class Gate:
    """Lets no two devices that share a resource compute at the same time, also for different requests."""

    def __init__(self, rivals: Mapping[str, Collection[str]]) -> None:
        """`rivals` names for each device those that share a resource with it."""
        self._rivals = rivals
        self._lock = Lock()
        self._waiting: dict[str, tuple[int, int]] = {}
        self._running: set[str] = set()
        self._granted: dict[str, SimpleQueue[None]] = {name: SimpleQueue() for name in rivals}

    @contextmanager
    def turn(self, device: str, request: int, step: int) -> Iterator[None]:
        """The block runs alone: it waits until no rival computes, and steps of older requests come first.

        A step that has to wait for another device does not keep third ones from computing.
        """
        with self._lock:
            self._waiting[device] = request, step
            self._grant()
        self._granted[device].get()
        try:
            yield
        finally:
            with self._lock:
                self._running.remove(device)
                self._grant()

    def _grant(self) -> None:
        for device in sorted(self._waiting, key=self._waiting.__getitem__):
            if self._running.isdisjoint(self._rivals[device]):
                del self._waiting[device]
                self._running.add(device)
                self._granted[device].put(None)

"""Sessions that have been created once, by what they hold: moving one op group then rebuilds nothing else."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable
from threading import Lock

from gnnplace.executors.part_session import PartSession

__all__ = ["SessionCache"]


class SessionCache:
    """Sessions by key, the least recently used ones dropped beyond `max_sessions`.

    Safe for several threads. A key must name the content and the device.
    """

    def __init__(self, max_sessions: int | None = None) -> None:
        self._max_sessions = max_sessions
        self._sessions: OrderedDict[Hashable, PartSession] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, create: Callable[[], PartSession]) -> PartSession:
        """The session of `key`; `create` makes it when it is not there.

        `create` runs on the calling thread and outside the lock, so that devices compile side by side.
        """
        with self._lock:
            if key in self._sessions:
                self._sessions.move_to_end(key)
                return self._sessions[key]
        session = create()
        with self._lock:
            self._sessions[key] = session
            self._sessions.move_to_end(key)
            while self._max_sessions is not None and len(self._sessions) > self._max_sessions:
                self._sessions.popitem(last=False)
        return session

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._sessions

    def retain(self, keys: Collection[Hashable]) -> None:
        """Drops all sessions but those of `keys`."""
        with self._lock:
            for key in [key for key in self._sessions if key not in keys]:
                del self._sessions[key]

    def clear(self) -> None:
        """Drops all sessions; those in use live on with their users."""
        with self._lock:
            self._sessions.clear()

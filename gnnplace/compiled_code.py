"""Functions compiled by numba, which run as plain Python where numba is not installed."""

import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from time import perf_counter
from typing import Any, TypeVar

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def njit(**options: Any) -> Callable[[FunctionT], FunctionT]:
    """`numba.njit` with these options; without numba the function stays plain Python and gives the same results."""
    try:
        import numba
    except ImportError:
        return lambda function: function
    return numba.njit(**options)  # type: ignore[no-any-return]


def inlined(function: FunctionT) -> FunctionT:
    """Compiled into every function that calls it, for inner loops.

    A compiled call counts references to every array that it is given, also to those in tuples: half a microsecond for forty
    arrays. Plain arrays in functions that are inlined cost nothing. One assignment to a row of an array brings the cost back.
    """
    return njit(nogil=True, inline="always")(function)


def running_s() -> float:
    """Seconds of a clock that stands still while numba compiles functions, or loads compiled ones, from the first call on.

    Compilation takes two minutes in the first search after `pip install` (`make install` compiles ahead), and half a second in the first one
    of each process.
    """
    return perf_counter() - float(_compilation().seconds)


@cache
def _compilation() -> Any:
    """Counts the seconds in which any thread of this process compiles, or waits for its turn to compile."""
    from numba.core import event

    class Compilation(event.Listener):
        begin_s = ended_s = 0.0
        nested = 0

        @property
        def seconds(self) -> float:
            return self.ended_s + (perf_counter() - self.begin_s if self.nested else 0.0)

        def on_start(self, event: Any) -> None:
            if not self.nested:
                self.begin_s = perf_counter()
            self.nested += 1

        def on_end(self, event: Any) -> None:
            self.nested -= 1
            if not self.nested:
                self.ended_s += perf_counter() - self.begin_s

    compilation = Compilation()
    event.register("numba:compiler_lock", compilation)  # type: ignore[no-untyped-call]
    return compilation


def find_room_for_compiled_code() -> None:
    """Gives numba a temporary folder of this user where neither the package's folder nor the user's cache can be written.

    To be called before numba is imported; a folder that the user has named is left as it is.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if "NUMBA_CACHE_DIR" in os.environ or _is_writable(os.path.dirname(__file__)) or _is_writable(cache):
        return
    folder = os.path.join(tempfile.gettempdir(), f"gnnplace-compiled-{os.getuid()}")
    with suppress(OSError):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        found = os.lstat(folder)
        # Another user may have written code there; it must not run.
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022:
            os.environ["NUMBA_CACHE_DIR"] = folder


def _is_writable(folder: str) -> bool:
    """The folder can be written, or made."""
    folder = os.path.abspath(folder)
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return os.access(folder, os.W_OK)

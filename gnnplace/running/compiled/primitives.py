"""Atomic operations, calls by address and waiting, for compiled threads; numba compiles them."""

import ctypes
import platform
from collections.abc import Callable
from typing import Any, TypeVar

from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import njit, typeof, types
from numba.core.types import Type
from numba.extending import intrinsic
from numba.np.arrayobj import make_array
from numba.np.numpy_support import carray

from gnnplace.arrays import IntArray

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
FUTEX_CALLS = {"x86_64": 202, "aarch64": 98}
"""Number of the system call on each processor."""
_RELAX = {"x86_64": "pause", "aarch64": "yield"}
binding.initialize_native_asmparser()  # for `_RELAX`
_WAIT, _WAKE, _PRIVATE = 0, 1, 128
_EVERY = 2**31 - 1
_INT64 = ir.IntType(64)


def _word(context: Any, builder: Any, array_type: Type, array: Any, index: Any) -> Any:
    """Pointer to an entry of a contiguous one-dimensional array."""
    make: Any = make_array
    return builder.gep(make(array_type)(context, builder, array).data, [index])


def _add(typing_context: Any, words: Any, index: Any, value: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _word(context, builder, signature.args[0], arguments[0], arguments[1])
        return builder.atomic_rmw("add", place, arguments[2], "seq_cst")

    return types.int64(words, types.intp, types.int64), code


def _load(typing_context: Any, words: Any, index: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(_word(context, builder, signature.args[0], *arguments), "seq_cst", 8)

    return types.int64(words, types.intp), code


def _store(typing_context: Any, words: Any, index: Any, value: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _word(context, builder, signature.args[0], arguments[0], arguments[1])
        builder.store_atomic(arguments[2], place, "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(words, types.intp, types.int64), code


def _swap(typing_context: Any, words: Any, index: Any, expected: Any, value: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _word(context, builder, signature.args[0], arguments[0], arguments[1])
        swapped = builder.cmpxchg(place, arguments[2], arguments[3], "seq_cst", "seq_cst")
        return builder.extract_value(swapped, 1)

    return types.boolean(words, types.intp, types.int64, types.int64), code


def _relax(typing_context: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.asm(ir.FunctionType(ir.VoidType(), []), _RELAX.get(platform.machine(), ""), "", (), True)
        return context.get_dummy_value()

    return types.void(), code


def _call(typing_context: Any, address: Any, arguments: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        count = signature.args[1].count
        function = ir.FunctionType(_INT64, [_INT64] * count).as_pointer()
        given = [builder.extract_value(values[1], position) for position in range(count)]
        return builder.call(builder.inttoptr(values[0], function), given)

    tuple_of: Any = types.UniTuple
    return types.int64(types.int64, tuple_of(types.int64, len(arguments))), code


def _pointer(typing_context: Any, address: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    pointer_to: Any = types.CPointer
    return pointer_to(types.int64)(types.int64), code


def _intrinsic(function: Callable[..., Any]) -> Any:
    return intrinsic(function)


fetch_add: Any = _intrinsic(_add)
"""Adds to a word `(words, index, value)`; gives the value before."""
load: Any = _intrinsic(_load)
"""The value of a word `(words, index)`."""
store: Any = _intrinsic(_store)
"""Writes a word `(words, index, value)`."""
exchange: Any = _intrinsic(_swap)
"""Replaces the expected value of a word `(words, index, expected, value)`; true if it had that value."""
relax: Any = _intrinsic(_relax)
"""Tells the core that the thread only waits, which leaves more to a second thread of the core."""
call: Any = _intrinsic(_call)
"""Calls a C function at `(address, (arguments, ...))`, all 64-bit integers; gives its 64-bit result."""
_pointer_to: Any = _intrinsic(_pointer)


def address_of(name: str) -> int:
    """Address of a function of the C library."""
    return int(ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value or 0)


def futex_call() -> int | None:
    """Number of the system call by which threads sleep and wake; None on systems without it."""
    return FUTEX_CALLS.get(platform.machine()) if platform.system() == "Linux" else None


@njit(cache=True, nogil=True)
def words_at(address: int, count: int) -> IntArray:
    """The words of an array that somebody else keeps alive."""
    return carray(_pointer_to(address), count)


@njit(cache=True, nogil=True)
def sleep_on(words: IntArray, index: int, seen: int, system: tuple[int, int], timeout: int) -> None:
    """Sleeps until another thread wakes the word, unless it has changed from `seen`; `timeout` is the address of a limit, or 0.

    `system` are the address of `syscall` and the number of the call. Returns early now and then.
    """
    call(system[0], (system[1], words.ctypes.data + 8 * index, _WAIT | _PRIVATE, seen & 0xFFFFFFFF, timeout, 0, 0))


@njit(cache=True, nogil=True)
def wake(words: IntArray, index: int, system: tuple[int, int]) -> None:
    """Wakes all threads that sleep on the word."""
    call(system[0], (system[1], words.ctypes.data + 8 * index, _WAKE | _PRIVATE, _EVERY, 0, 0, 0))


def compile_for(function: Any, *arguments: Any) -> None:
    """Compiles a function for the types of these arguments, or loads it from the cache, so that its first call takes no longer than others."""
    function.compile(tuple(map(typeof, arguments)))

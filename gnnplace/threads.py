"""Work on several cores."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


def map_in_threads(function: Callable[[ItemT], ResultT], items: Iterable[ItemT], num_threads: int) -> Iterator[ResultT]:
    """The results in the order of the items, which are taken meanwhile, at most two per thread ahead of the results.

    It helps where `function` spends its time in compiled code without the interpreter lock. What has not begun when the iterator is
    closed, or when an item or a result raises, never does. With one thread the caller does all the work.
    """
    if num_threads == 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(num_threads) as pool:
        ahead = deque[Future[ResultT]]()
        try:
            for item in items:
                ahead.append(pool.submit(function, item))
                if len(ahead) > 2 * num_threads:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

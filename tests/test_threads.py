"""Work on several cores."""

import threading
import time
from collections.abc import Iterator

import pytest

from gnnplace.threads import map_in_threads


def test_results_come_in_the_order_of_the_items() -> None:
    def slow_at_first(item: int) -> int:
        time.sleep(0.02 * (item < 3))
        return item * item

    assert list(map_in_threads(slow_at_first, range(20), 3)) == [item * item for item in range(20)]
    assert list(map_in_threads(slow_at_first, [], 3)) == []


def test_one_thread_is_that_of_the_caller() -> None:
    found = map_in_threads(lambda _: threading.get_ident(), iter(range(3)), 1)
    assert next(found) == threading.get_ident()
    assert len(list(found)) == 2


def test_items_are_taken_by_the_caller_at_most_two_per_thread_ahead() -> None:
    takers, taken = set[int](), list[int]()

    def items() -> Iterator[int]:
        for item in range(100):
            takers.add(threading.get_ident())
            taken.append(item)
            yield item

    results = map_in_threads(str, items(), 2)
    assert next(results) == "0"
    assert len(taken) == 2 * 2 + 1
    results.close()  # type: ignore[attr-defined]
    assert len(taken) == 2 * 2 + 1
    assert takers == {threading.get_ident()}


def test_what_has_not_begun_never_does_when_an_item_or_a_result_raises() -> None:
    begun = list[int]()

    def fail(item: int) -> None:
        begun.append(item)
        time.sleep(0.2)
        raise ValueError(item)

    with pytest.raises(ValueError, match="0"):
        list(map_in_threads(fail, range(100), 2))
    assert len(begun) <= 2 * 2 + 2

    def interrupted() -> Iterator[int]:
        yield from range(4)
        raise KeyboardInterrupt

    begun.clear()
    with pytest.raises(KeyboardInterrupt):
        list(map_in_threads(fail, interrupted(), 2))
    assert len(begun) < 4

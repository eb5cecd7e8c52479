"""Reading ahead yields the same, and ends when it is told to."""

from collections.abc import Iterator
from contextlib import closing
from itertools import count
from threading import active_count

import pytest

from hubbub.recorder.ahead import Ahead


def test_everything_comes_in_order() -> None:
    with closing(Ahead(iter(range(1000)), 3)) as ahead:
        assert list(ahead) == list(range(1000))


def test_error_of_the_source_is_raised_where_it_is_read() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    ahead = Ahead(broken(), 3)
    items = iter(ahead)
    assert next(items) == 1
    with pytest.raises(ValueError, match="broken"):
        next(items)


def test_closing_ends_the_thread_of_a_source_without_end() -> None:
    before = active_count()
    with closing(Ahead(count(), 3)) as ahead:
        assert next(iter(ahead)) == 0
    assert active_count() == before

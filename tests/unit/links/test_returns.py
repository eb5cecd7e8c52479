"""What a reader gives back reaches the writer: once, in order, lap after lap, from many threads."""

import os
import threading

from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub.links.returns import RETURNS, ReturnBox, Returns


def ring() -> tuple[ReturnBox, Returns]:
    box = ReturnBox()
    return box, Returns(os.dup(box.fileno))


def test_nothing_was_given_back_at_first() -> None:
    _, returns = ring()
    assert returns.take() == [] and not returns.is_overrun


def test_look_tells_whether_there_is_something_also_after_laps_and_an_overrun() -> None:
    box, returns = ring()
    for _ in range(3 * RETURNS):
        assert not returns.has_some()
        box.append((1, 0))
        assert returns.has_some()
        returns.take()
    for _ in range(RETURNS + 1):
        box.append((1, 0))
    assert returns.has_some(), "or nobody would notice that it was overrun"


@settings(max_examples=50)
@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, (1 << 28) - 1), st.integers(0, (1 << 20) - 1)), max_size=300
        ),
        max_size=20,
    )
)
def test_places_come_in_order_and_once(batches: list[list[tuple[int, int]]]) -> None:
    box, returns = ring()
    for batch in batches:
        places = [(number, page * 4096) for number, page in batch]
        for place in places:
            box.append(place)
        assert returns.take() == places
        assert returns.take() == []


def test_many_laps() -> None:
    box, returns = ring()
    for round_ in range(40):
        places = [(round_, 4096 * at) for at in range(RETURNS // 3)]
        for place in places:
            box.append(place)
        assert returns.take() == places and not returns.is_overrun


def test_full_ring_is_read_and_an_overrun_one_is_noticed() -> None:
    box, returns = ring()
    for _ in range(RETURNS):
        box.append((1, 0))
    assert len(returns.take()) == RETURNS and not returns.is_overrun
    for _ in range(RETURNS + 1):
        box.append((1, 0))
    returns.take()
    assert returns.is_overrun


def test_threads_lose_nothing() -> None:
    box, returns = ring()
    threads = [threading.Thread(target=give, args=(box, number)) for number in range(4)]
    taken: list[tuple[int, int]] = []
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        taken += returns.take()
    taken += returns.take()
    assert not returns.is_overrun
    for number in range(4):
        offsets = [offset for arena, offset in taken if arena == number]
        assert offsets == [4096 * at for at in range(RETURNS // 4)]


def give(box: ReturnBox, number: int) -> None:
    for at in range(RETURNS // 4):
        box.append((number, 4096 * at))

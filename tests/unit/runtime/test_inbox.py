"""The queue of runs: order, exact counts, and what each way of dropping drops."""

import sys

from hypothesis import given
from hypothesis import strategies as st

from hubbub.message import Message
from hubbub.protocol.delivery import Delivery
from hubbub.runtime.inbox import Inbox
from hubbub.runtime.tally import Loss
from tests.unit.runtime.fakes import LIDAR, TEMP, run


def drain(inbox: Inbox) -> list[int]:
    sequences = []
    while (message := inbox.take()) is not None:
        sequences.append(message.sequence)
    return sequences


def loss_of(inbox: Inbox) -> list[int]:
    loss = inbox.drops.take()
    if loss is None:
        return []
    return [s for _, _, first, last in loss.ranges for s in range(first, last + 1)]


def test_a_message_has_every_field_of_its_run() -> None:
    inbox = Inbox(10)
    inbox.put(run(5, 2), "context")
    inbox.put(run(7, 1), None)
    assert inbox.take() == Message("/plant/temp", b"5", LIDAR, 5, 1005, 77, "multicast", "context")
    assert inbox.take() == Message("/plant/temp", b"6", LIDAR, 6, 1006, 77, "multicast", "context")
    alone = inbox.take()
    assert alone == Message("/plant/temp", b"7", LIDAR, 7, 1007, 77, "multicast", None)
    assert isinstance(alone, Message)


def test_publish_times_may_come_as_any_sequence() -> None:
    inbox = Inbox(10)
    inbox.put(Delivery(TEMP, 1, [b"a", b"b"], (11, 12), 77, "loopback"), None)
    message = inbox.take()
    assert message is not None
    assert message.published_ns == 11


def test_pending_counts_queued_runs_and_the_rest_of_the_opened_one() -> None:
    inbox = Inbox(10)
    inbox.put(run(1, 4), None)
    inbox.put(run(5, 3), None)
    pending = [inbox.pending]
    for _ in range(7):
        inbox.take()
        pending.append(inbox.pending)
    assert pending == [7, 6, 5, 4, 3, 2, 1, 0]


def test_a_run_that_exactly_fits_is_taken_and_one_more_is_not() -> None:
    inbox = Inbox(5)
    assert inbox.put(run(1, 3), None)
    assert inbox.put(run(4, 2), None)
    assert not inbox.put(run(6, 1), None)
    assert drain(inbox) == [1, 2, 3, 4, 5]


def test_the_rest_of_an_opened_run_counts_against_the_limit() -> None:
    inbox = Inbox(5)
    inbox.put(run(1, 5), None)
    inbox.take()
    inbox.take()
    assert not inbox.put(run(6, 3), None)
    assert inbox.put(run(6, 2), None)


def test_dropping_newest_keeps_the_head_of_the_run() -> None:
    inbox = Inbox(5)
    inbox.put(run(1, 3), None)
    assert inbox.put_dropping_newest(run(4, 6), None) == 4
    assert inbox.drops.take() == Loss(4, (("/plant/temp", LIDAR, 6, 9),))
    assert drain(inbox) == [1, 2, 3, 4, 5]


def test_dropping_newest_of_a_full_queue_drops_the_whole_run() -> None:
    inbox = Inbox(3)
    inbox.put(run(1, 3), None)
    assert inbox.put_dropping_newest(run(4, 2), None) == 2
    assert drain(inbox) == [1, 2, 3]


def test_dropping_oldest_splits_the_oldest_run() -> None:
    inbox = Inbox(5)
    inbox.put(run(1, 4), None)
    assert inbox.put_dropping_oldest(run(5, 3), None) == 2
    assert inbox.drops.take() == Loss(2, (("/plant/temp", LIDAR, 1, 2),))
    assert inbox.pending == 5
    assert drain(inbox) == [3, 4, 5, 6, 7]


def test_dropping_oldest_begins_with_the_opened_run() -> None:
    inbox = Inbox(5)
    inbox.put(run(1, 4), None)
    inbox.take()
    assert inbox.put_dropping_oldest(run(5, 6), None) == 4
    assert inbox.drops.take() == Loss(4, (("/plant/temp", LIDAR, 2, 5),))
    assert drain(inbox) == [6, 7, 8, 9, 10]


def test_a_run_larger_than_the_queue_leaves_its_newest_part() -> None:
    inbox = Inbox(3)
    inbox.put(run(1, 2), None)
    assert inbox.put_dropping_oldest(run(3, 10), None) == 9
    assert drain(inbox) == [10, 11, 12]


def test_a_run_that_fits_by_now_is_queued_without_loss() -> None:
    inbox = Inbox(3)
    assert inbox.put_dropping_oldest(run(1, 3), None) == 0
    drain(inbox)
    assert inbox.put_dropping_newest(run(4, 3), None) == 0
    assert inbox.drops.take() is None
    assert drain(inbox) == [4, 5, 6]


def test_discarding_also_ends_the_run_a_reader_is_in() -> None:
    inbox = Inbox(10)
    inbox.put(run(1, 4), None)
    inbox.put(run(5, 4), None)
    reader = inbox.current
    inbox.take()
    reader = inbox.current
    inbox.discard()
    assert list(reader) == []
    assert inbox.pending == 0
    assert inbox.discarded == 7


def test_a_single_message_is_not_kept_once_it_is_taken() -> None:
    payload = bytes(1000)
    references = sys.getrefcount(payload)
    inbox = Inbox(10)
    inbox.put(run(1, 1, payloads=[payload]), None)
    assert sys.getrefcount(payload) > references
    inbox.take()
    assert sys.getrefcount(payload) == references


@given(
    limit=st.integers(1, 12),
    steps=st.lists(st.tuples(st.sampled_from("pt"), st.integers(1, 15)), max_size=60),
    oldest=st.booleans(),
)
def test_every_message_is_taken_once_in_order_or_counted_as_dropped(
    limit: int, steps: list[tuple[str, int]], oldest: bool
) -> None:
    inbox = Inbox(limit)
    taken: list[int] = []
    put = 0
    for kind, count in steps:
        if kind == "p":
            delivery = run(put, count)
            put += count
            if not inbox.put(delivery, None):
                drop = inbox.put_dropping_oldest if oldest else inbox.put_dropping_newest
                assert drop(delivery, None) > 0
                assert inbox.pending == limit
        else:
            taken += [m.sequence for m in (inbox.take() for _ in range(count)) if m]
        assert inbox.pending <= limit
    taken += drain(inbox)
    dropped = loss_of(inbox)
    assert taken == sorted(set(taken))
    assert sorted(taken + dropped) == list(range(put))
    assert inbox.drops.total == len(dropped)

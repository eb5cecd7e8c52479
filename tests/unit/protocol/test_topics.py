"""Order within a topic: once, in sequence, each hole once."""

import pytest

from hubbub.limits import LOST_RUNS_MAX
from hubbub.message import Source
from hubbub.protocol.delivery import Delivery
from hubbub.protocol.topics import Hole, IncomingTopic, Way


class Reader:
    """A topic with what it has handed out."""

    def __init__(self, *, is_reliable: bool = True, first: int = 1) -> None:
        self.holes: list[Hole] = []
        self.out: list[Delivery] = []
        self.topic = IncomingTopic(
            16, "/a", Source("p", bytes(12), 1), self.holes, Way(),
            is_reliable=is_reliable, is_wanted=True,
        )  # fmt: skip
        self.topic.start(first)

    def accept(self, frame: int, first: int, count: int = 1) -> None:
        payloads = [b"%d" % (first + place) for place in range(count)]
        self.topic.accept(frame, first, payloads, [0] * count, 99, self.out)

    def lose(self, first: int, count: int, reason: str = "not_available") -> None:
        self.topic.lose(first, count, reason, 99, self.out)

    def settle(self, base: int) -> None:
        self.topic.settle(base, "given_up", 99, self.out)

    @property
    def sequences(self) -> list[int]:
        for delivery in self.out:
            expected = [b"%d" % (delivery.first + i) for i in range(len(delivery.payloads))]
            assert delivery.payloads == expected
            assert len(delivery.published_ns) == len(delivery.payloads)
        return [each.first + place for each in self.out for place in range(len(each.payloads))]

    @property
    def spans(self) -> list[tuple[int, int, str]]:
        return [(hole.first, hole.last, hole.reason) for hole in self.holes]


def test_run_in_order_is_handed_out_as_one_delivery() -> None:
    reader = Reader()
    reader.accept(1, 1, 3)
    (delivery,) = reader.out
    assert (delivery.first, delivery.received_ns) == (1, 99)
    assert delivery.link is reader.topic.way.link
    assert reader.sequences == [1, 2, 3]


def test_early_run_waits_for_what_is_before_it() -> None:
    reader = Reader()
    reader.accept(3, 4, 2)
    reader.accept(2, 3)
    assert reader.sequences == []
    reader.accept(1, 1, 2)
    assert reader.sequences == [1, 2, 3, 4, 5]
    assert not reader.topic.waiting


def test_messages_before_the_start_are_not_delivered() -> None:
    reader = Reader(first=5)
    reader.accept(1, 3, 4)
    assert reader.sequences == [5, 6]


def test_duplicates_are_counted_and_only_the_new_end_of_a_run_is_delivered() -> None:
    reader = Reader()
    reader.accept(1, 1, 3)
    reader.accept(2, 2, 1)
    reader.accept(3, 2, 4)
    assert reader.sequences == [1, 2, 3, 4, 5]
    assert reader.topic.duplicates == 3


def test_hole_is_reported_once_when_the_next_message_is_there() -> None:
    reader = Reader()
    reader.lose(1, 2)
    reader.lose(3, 1)
    assert reader.spans == []
    reader.accept(9, 4)
    assert reader.spans == [(1, 3, "not_available")]
    assert reader.sequences == [4] and reader.topic.lost == 3


def test_lost_messages_further_on_wait_for_their_turn() -> None:
    reader = Reader()
    reader.lose(3, 2)
    reader.accept(5, 5)
    assert reader.sequences == [] and reader.spans == []
    reader.accept(1, 1, 2)
    assert reader.sequences == [1, 2, 5]
    assert reader.spans == [(3, 4, "not_available")]


def test_loss_of_what_is_already_here_changes_nothing() -> None:
    reader = Reader()
    reader.accept(1, 1, 3)
    reader.lose(2, 2)
    reader.accept(2, 4)
    assert reader.sequences == [1, 2, 3, 4] and reader.spans == []


def test_settled_frames_give_up_what_is_before_their_runs() -> None:
    reader = Reader()
    reader.accept(5, 4)
    reader.accept(9, 8)
    reader.settle(6)
    assert reader.sequences == [4]
    assert reader.spans == [(1, 3, "given_up")]
    reader.settle(10)
    assert reader.sequences == [4, 8]
    assert reader.spans == [(1, 3, "given_up"), (5, 7, "given_up")]


def test_unsettled_frames_give_up_nothing() -> None:
    reader = Reader()
    reader.accept(5, 4)
    reader.settle(5)
    assert reader.sequences == [] and reader.spans == []


def test_stopped_topic_closes_its_hole_and_forgets_what_waited() -> None:
    reader = Reader()
    reader.lose(1, 2)
    reader.accept(5, 9)
    reader.topic.stop()
    assert reader.spans == [(1, 2, "not_available")]
    assert reader.topic.expected is None and not reader.topic.waiting
    reader.topic.start(20)
    reader.accept(6, 20)
    assert reader.sequences == [20]


def test_new_start_ahead_of_the_old_one_is_a_hole_that_expired() -> None:
    reader = Reader()
    reader.topic.start(4)
    reader.accept(1, 4)
    assert reader.spans == [(1, 3, "expired")]
    reader.topic.start(2)
    assert reader.topic.expected == 5


def test_best_effort_goes_on_at_once_and_counts_holes_and_late_ones() -> None:
    reader = Reader(is_reliable=False)
    reader.accept(1, 3)
    reader.accept(2, 1, 2)
    assert reader.sequences == [3] and reader.spans == []
    assert (reader.topic.lost, reader.topic.late) == (2, 2)


def test_memory_for_lost_messages_that_never_get_their_turn_is_bounded() -> None:
    reader = Reader()
    for number in range(3 * LOST_RUNS_MAX):
        reader.lose(10 + 2 * number, 1)
    assert len(reader.topic.gone) <= LOST_RUNS_MAX
    reader.accept(1, 1, 9)
    assert reader.sequences == list(range(1, 10))


@pytest.mark.parametrize("order", [(1, 2, 3, 4), (4, 3, 2, 1), (2, 1, 4, 3), (3, 1, 4, 2)])
def test_any_order_of_arrival_is_one_order_of_delivery(order: tuple[int, ...]) -> None:
    reader = Reader()
    for frame in order:
        reader.accept(frame, frame)
    assert reader.sequences == [1, 2, 3, 4]

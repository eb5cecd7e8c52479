"""The receiving end of a stream: which frames came, what they hold, what is given up."""

from itertools import count
from random import Random
from typing import Any

import pytest

from hubbub.limits import HELD_BYTES_MAX, MISSING_FRAMES_MAX, MS
from hubbub.message import Source
from hubbub.protocol.delivery import Delivery
from hubbub.protocol.reassembly import Budget, Share
from hubbub.protocol.receiver import Receiver
from hubbub.wire import batch, train
from hubbub.wire.control import Lost, Topic, encode_declarations
from hubbub.wire.header import BEST_EFFORT, DECLARES, HEADER_BYTES, RELIABLE, SEGMENT, prefix

A = Topic(16, RELIABLE, "/a", 1)
B = Topic(17, RELIABLE, "/b", 1)
UNWANTED = Topic(18, RELIABLE, "/unwanted", 1)


SHARED = prefix(SEGMENT, 0, RELIABLE, 0, bytes(20), 8)
STEP = HEADER_BYTES + batch.SEGMENT_HEAD_BYTES + 300


def make_train(first: int = 0, *, topic: int = 16, sequence: int = 1, frame: int = 1) -> bytes:
    """Make frames of the pieces of a message of 900 bytes up to its last one, from one on."""
    payload = b"".join(bytes([number]) * 300 for number in range(3))
    about = topic, sequence, 0, len(payload)
    pieces = train.Train(about, payload, 300, first * 300, 2 - first)
    return bytes(train.make(SHARED, frame, count(1), 0, pieces))


class Inlet:
    """A receiver with what it has handed out."""

    def __init__(
        self, *topics: Topic, stream: int = RELIABLE, from_frame: int = 1, budget: int = 1 << 20
    ) -> None:
        self.receiver = Receiver(
            stream, Source("p", bytes(12), 1), from_frame, Random(0), 1 * MS, Share(Budget(budget)),
            lambda subject: subject != "/unwanted",
        )  # fmt: skip
        self.out: list[Delivery] = []
        for topic in topics:
            self.receiver.declare(topic)

    def data(self, frame: int, *runs: batch.Run, flags: int = 0, declares: bytes = b"") -> bool:
        payloads = [b"%d" % (first + i) for _, first, count in runs for i in range(count)]
        body = batch.encode(runs, payloads, [0] * len(payloads), declares)
        return self.body(frame, body, flags)

    def body(self, frame: int, body: bytes, flags: int = 0) -> bool:
        return self.receiver.accept_data(0, frame, flags, body, 0, len(body), 99, self.out)

    def piece(self, frame: int, sequence: int, number: int, total: int = 900) -> bool:
        head = batch.encode_segment_head(16, sequence, 0, total, number * 300, 300)
        body = head + bytes([number]) * min(300, total - number * 300)
        return self.receiver.accept_segment(0, frame, body, 0, len(body), 99, self.out)

    def train(self, buffer: bytes) -> int:
        return self.receiver.accept_train(SHARED.data, buffer, 0, STEP)

    def lose(self, ranges: list[Any], runs: list[Any], reason: str = "not_available") -> None:
        self.receiver.lose(Lost(b"", reason, ranges, runs), 99, self.out)

    @property
    def got(self) -> list[tuple[str, int]]:
        return [(each.topic.subject, each.first + i) for each in self.out
                for i in range(len(each.payloads))]  # fmt: skip

    @property
    def holes(self) -> list[tuple[str, int, int, str]]:
        return [(h.topic.subject, h.first, h.last, h.reason) for h in self.receiver.holes]


def test_frames_with_runs_of_several_topics_are_taken_apart() -> None:
    inlet = Inlet(A, B)
    assert inlet.data(1, (16, 1, 2), (17, 1, 1), (16, 3, 1))
    assert inlet.got == [("/a", 1), ("/a", 2), ("/b", 1), ("/a", 3)]


def test_frame_that_names_a_topic_to_a_newcomer_moves_nobody_else_on() -> None:
    inlet = Inlet(A)
    named = encode_declarations([Topic(16, RELIABLE, "/a", 3)])
    inlet.data(2, flags=DECLARES, declares=named)
    inlet.data(1, (16, 1, 2))
    inlet.data(3, (16, 3, 1))
    assert inlet.got == [("/a", 1), ("/a", 2), ("/a", 3)] and inlet.holes == []


def test_hole_in_one_topic_does_not_hold_up_another() -> None:
    inlet = Inlet(A, B)
    inlet.data(1, (16, 1, 1))
    inlet.data(3, (17, 1, 1), (16, 3, 1))
    assert inlet.got == [("/a", 1), ("/b", 1)]
    assert list(inlet.receiver.requester.missing) == [2]
    inlet.data(2, (16, 2, 1))
    assert inlet.got[2:] == [("/a", 2), ("/a", 3)]
    assert (inlet.receiver.base, inlet.receiver.next, inlet.receiver.repaired) == (4, 4, 1)


def test_frame_that_came_before_is_refused_as_a_duplicate() -> None:
    inlet = Inlet(A)
    assert inlet.data(1, (16, 1, 1))
    assert not inlet.data(1, (16, 1, 1))
    assert (inlet.receiver.refusal, inlet.receiver.duplicates) == ("duplicate", 1)
    assert inlet.got == [("/a", 1)]


def test_malformed_frame_is_not_marked_as_seen() -> None:
    inlet = Inlet(A)
    assert not inlet.body(1, b"\xff" * 50)
    assert not inlet.data(1, flags=DECLARES, declares=b"\xc1")
    assert (inlet.receiver.refusal, inlet.receiver.malformed) == ("malformed", 2)
    assert inlet.receiver.next == 1
    assert inlet.data(1, (16, 1, 1)) and inlet.got == [("/a", 1)]


def test_declared_topic_starts_where_its_declaration_says() -> None:
    inlet = Inlet()
    declares = encode_declarations([Topic(20, RELIABLE, "/new", 5, "T", 9)])
    inlet.data(1, (20, 5, 1), flags=DECLARES, declares=declares)
    assert inlet.got == [("/new", 5)]
    assert inlet.receiver.topics[20].schema_hash == 9


def test_subject_that_cannot_be_one_is_not_learnt() -> None:
    inlet = Inlet(A)
    for subject in ("", "no slash", "/*", "/a//b", "/\x1b[2J", "/" + "x" * 2000):
        inlet.receiver.declare(Topic(21, RELIABLE, subject, 1))
    assert list(inlet.receiver.topics) == [16]


def test_unwanted_topics_are_passed_over_in_silence() -> None:
    inlet = Inlet(UNWANTED, A)
    inlet.data(1, (18, 1, 1), (16, 1, 1))
    inlet.data(3, (18, 5, 1))
    inlet.receiver.abandon([2], "given_up", 99, inlet.out)
    assert inlet.got == [("/a", 1)] and inlet.holes == []


def test_unknown_topic_is_held_while_a_grant_is_under_way() -> None:
    inlet = Inlet()
    inlet.receiver.is_awaiting_grant = True
    inlet.data(1, (16, 1, 2))
    inlet.receiver.declare(A)
    inlet.receiver.is_awaiting_grant = False
    inlet.receiver.release_held(99, inlet.out)
    assert inlet.got == [("/a", 1), ("/a", 2)]
    assert inlet.receiver.held_bytes == 0


def test_empty_messages_cannot_fill_what_is_held() -> None:
    inlet = Inlet()
    inlet.receiver.is_awaiting_grant = True
    body = batch.encode([(16, 1, 1)], [b""], [0])
    frame = 0
    while inlet.body(frame := frame + 1, body):
        assert frame < HELD_BYTES_MAX // 100
    assert inlet.receiver.refusal == "deferred"


def test_lost_frames_are_named_by_topic_and_range_and_order_goes_on() -> None:
    inlet = Inlet(A, B)
    inlet.data(1, (16, 1, 1))
    inlet.data(4, (16, 8, 1), (17, 2, 1))
    inlet.lose([(2, 2)], [(16, 2, 6), (17, 1, 1)], "too_slow")
    assert inlet.got == [("/a", 1), ("/a", 8), ("/b", 2)]
    assert sorted(inlet.holes) == [("/a", 2, 7, "too_slow"), ("/b", 1, 1, "too_slow")]
    assert inlet.receiver.base == 5


def test_hole_at_the_end_of_a_topic_is_told_when_the_last_missing_frame_has_come() -> None:
    inlet = Inlet(A, B)
    inlet.data(1, (16, 1, 1), (17, 1, 1))
    inlet.data(4, (17, 3, 1))
    inlet.lose([(2, 1)], [(16, 2, 5)])
    assert inlet.holes == [] and not inlet.receiver.is_mended, "what is in frame 3 may be lost, too"
    inlet.data(3, (17, 2, 1))
    assert inlet.receiver.is_mended
    inlet.receiver.close_holes()
    assert inlet.holes == [("/a", 2, 6, "not_available")] and not inlet.receiver.is_mended
    assert inlet.got == [("/a", 1), ("/b", 1), ("/b", 2), ("/b", 3)]


def test_skipped_frames_are_no_hole() -> None:
    inlet = Inlet(A)
    inlet.data(1, (16, 1, 1))
    inlet.data(4, (16, 2, 1))
    inlet.receiver.skip([(2, 2)], 99, inlet.out)
    assert inlet.got == [("/a", 1), ("/a", 2)]
    assert inlet.holes == [] and inlet.receiver.base == 5


def test_frames_given_up_are_one_hole_and_are_never_taken_later() -> None:
    inlet = Inlet(A)
    inlet.data(3, (16, 5, 1))
    inlet.receiver.abandon([1, 2], "given_up", 99, inlet.out)
    assert inlet.holes == [("/a", 1, 4, "given_up")]
    assert not inlet.data(2, (16, 3, 1))
    assert inlet.got == [("/a", 5)]


def test_frames_given_up_without_a_word_of_their_content_are_a_blind_hole() -> None:
    inlet = Inlet(A)
    inlet.receiver.extend(0, 4)
    inlet.receiver.close("publisher_gone", 99, inlet.out)
    assert inlet.receiver.blind_holes == [(1, 3, "publisher_gone")]


def test_frames_given_up_are_named_once_by_the_next_message() -> None:
    """They were told as frames when they were given up, and as messages when one followed."""
    inlet = Inlet(A)
    inlet.data(1, (16, 1, 1))
    inlet.receiver.extend(0, 3)
    inlet.receiver.abandon([2], "given_up", 99, inlet.out)
    assert inlet.receiver.blind_holes == [] and inlet.holes == []
    inlet.data(3, (16, 3, 1))
    assert inlet.holes == [("/a", 2, 2, "given_up")]
    inlet.receiver.close("publisher_gone", 99, inlet.out)
    assert inlet.receiver.blind_holes == []


def test_hole_of_a_resync_is_reported_once_and_by_name() -> None:
    inlet = Inlet(A)
    inlet.data(1, (16, 1, 1))
    inlet.receiver.extend(0, 10 + MISSING_FRAMES_MAX)
    assert inlet.receiver.blind_holes == [] and inlet.holes == []
    inlet.data(10 + MISSING_FRAMES_MAX, (16, 500, 1))
    assert inlet.holes == [("/a", 2, 499, "resync")]
    inlet.receiver.close("publisher_gone", 99, inlet.out)
    assert inlet.receiver.blind_holes == []


def test_hole_of_a_resync_that_no_message_names_is_reported_when_the_stream_ends() -> None:
    inlet = Inlet(A)
    inlet.data(1, (16, 1, 1))
    inlet.receiver.extend(0, 10 + MISSING_FRAMES_MAX)
    inlet.receiver.close("publisher_gone", 99, inlet.out)
    assert inlet.receiver.blind_holes == [(2, 9 + MISSING_FRAMES_MAX, "resync")]


def test_absurd_jump_costs_no_memory_and_is_counted() -> None:
    inlet = Inlet(A)
    inlet.data(2**63, (16, 1, 1))
    assert len(inlet.receiver.requester.missing) == 0
    assert inlet.receiver.resyncs == 1
    inlet.receiver.extend(0, 2**63 + 1 + MISSING_FRAMES_MAX)
    assert len(inlet.receiver.requester.missing) == MISSING_FRAMES_MAX
    inlet.receiver.extend(0, 2**63 + 2 + MISSING_FRAMES_MAX)
    assert len(inlet.receiver.requester.missing) == MISSING_FRAMES_MAX


def test_large_message_keeps_its_place_in_the_order() -> None:
    inlet = Inlet(A)
    inlet.data(1, (16, 1, 1))
    inlet.piece(2, 2, 0)
    inlet.piece(4, 2, 2)
    inlet.data(5, (16, 3, 1))
    assert inlet.got == [("/a", 1)]
    inlet.piece(3, 2, 1)
    assert inlet.got == [("/a", 1), ("/a", 2), ("/a", 3)]
    assert inlet.out[1].payloads == [b"\0" * 300 + b"\1" * 300 + b"\2" * 300]


@pytest.mark.parametrize("first", [0, 1])
def test_large_message_may_begin_with_a_train(first: int) -> None:
    inlet = Inlet(A)
    share = inlet.receiver.reassembly.share
    assert inlet.train(make_train(first)) == 2 - first
    assert share.claimed_bytes == 900
    assert inlet.got == [] and inlet.receiver.next == 3 - first
    rest = [2, *range(first)]
    assert all(inlet.piece(3 - first + at, 1, number) for at, number in enumerate(rest))
    assert inlet.got == [("/a", 1)] and share.claimed_bytes == 0
    assert inlet.out[0].payloads == [bytes(300) + b"\1" * 300 + b"\2" * 300]


@pytest.mark.parametrize(
    ("inlet", "frames"),
    [
        (Inlet(), make_train()),  # Nobody has named its topic.
        (Inlet(UNWANTED), make_train(topic=18)),
        (Inlet(Topic(16, RELIABLE, "/a", 2)), make_train()),  # Before the first that is owed.
        (Inlet(A, stream=BEST_EFFORT), make_train()),  # What it overtakes must be forgotten.
        (Inlet(A, budget=899), make_train()),
        (Inlet(A), make_train(frame=2)),  # A frame is missing.
        (Inlet(A), make_train()[: STEP - 1]),
        (Inlet(A), bytes([make_train()[0] ^ 1]) + make_train()[1:]),
        (Inlet(A), make_train()[: STEP - 1] + b"x"),  # Damaged.
    ],
)
def test_what_is_not_plain_begins_no_message_with_a_train(inlet: Inlet, frames: bytes) -> None:
    assert inlet.train(frames) == 0
    assert not inlet.receiver.reassembly.partials
    assert inlet.receiver.reassembly.share.claimed_bytes == 0
    assert inlet.receiver.next == 1


def test_large_message_that_lost_a_piece_for_good_is_one_hole() -> None:
    inlet = Inlet(A)
    inlet.piece(1, 1, 0)
    inlet.piece(3, 1, 2)
    inlet.data(4, (16, 2, 1))
    inlet.lose([(2, 1)], [(16, 1, 1)])
    assert inlet.got == [("/a", 2)]
    assert inlet.holes == [("/a", 1, 1, "not_available")]
    assert inlet.receiver.reassembly.share.claimed_bytes == 0


def test_message_that_can_never_fit_is_reported_and_the_next_one_comes() -> None:
    inlet = Inlet(A, budget=500)
    inlet.piece(1, 1, 0)
    inlet.piece(2, 1, 1)
    inlet.piece(3, 1, 2)
    inlet.data(4, (16, 2, 1))
    assert inlet.got == [("/a", 2)]
    assert inlet.holes == [("/a", 1, 1, "no_memory")]


def test_large_best_effort_messages_still_come_after_many_have_lost_a_piece() -> None:
    topic = Topic(16, BEST_EFFORT, "/a", 1)
    inlet = Inlet(topic, stream=BEST_EFFORT, budget=2000)
    for number in range(1, 50):
        inlet.piece(10 * number, number, 0)
    for place in range(3):
        assert inlet.piece(600 + place, 60, place)
    assert inlet.got == [("/a", 60)]
    assert inlet.receiver.reassembly.share.claimed_bytes == 0


def test_best_effort_asks_for_nothing() -> None:
    inlet = Inlet(Topic(16, BEST_EFFORT, "/a", 1), stream=BEST_EFFORT)
    inlet.data(1, (16, 1, 1))
    inlet.data(9, (16, 9, 1))
    assert not inlet.receiver.requester.missing and inlet.receiver.requester.timer_ns is None
    assert inlet.got == [("/a", 1), ("/a", 9)] and inlet.receiver.topics[16].lost == 7


def test_closed_stream_hands_out_what_waited_and_reports_the_rest() -> None:
    inlet = Inlet(A)
    inlet.data(1, (16, 1, 1))
    inlet.data(3, (16, 3, 1))
    inlet.receiver.close("publisher_gone", 99, inlet.out)
    assert inlet.got == [("/a", 1), ("/a", 3)]
    assert inlet.holes == [("/a", 2, 2, "publisher_gone")]


def test_topic_that_is_no_longer_wanted_stops_and_may_start_again() -> None:
    wanted = True
    inlet = Inlet()
    inlet.receiver.is_wanted = lambda _subject: wanted
    inlet.receiver.declare(A)
    inlet.data(1, (16, 1, 1))
    wanted = False
    inlet.receiver.reconsider_interest()
    inlet.data(2, (16, 2, 1))
    wanted = True
    inlet.receiver.reconsider_interest()
    inlet.receiver.declare(Topic(16, RELIABLE, "/a", 4))
    inlet.data(3, (16, 4, 1))
    assert inlet.got == [("/a", 1), ("/a", 4)] and inlet.holes == []


def test_grant_from_a_later_frame_ends_what_was_missing_before_it() -> None:
    inlet = Inlet(A)
    inlet.receiver.extend(0, 5)
    inlet.receiver.grant(4)
    assert list(inlet.receiver.requester.missing) == [4]

"""Framing: batches when busy, frames of one when quiet, large messages cut without blocking."""

import pytest

from hubbub.limits import BUSY_MESSAGES, BUSY_WINDOW, MS, REFERRED_BYTES_AT_ONCE, US
from hubbub.message import Source
from hubbub.protocol.cache import body_bytes
from hubbub.protocol.framing import Framer
from hubbub.protocol.topics import OutgoingTopic
from hubbub.wire import batch
from hubbub.wire.control import decode_declarations
from hubbub.wire.header import DECLARES, RELIABLE

FRAME_BYTES = 1400


def make_framer(holdback_ns: int = 1 * MS) -> Framer:
    return Framer(RELIABLE, FRAME_BYTES, holdback_ns, BUSY_MESSAGES, 1 << 20)


def make_topic(number: int = 16, subject: str = "/a", *, is_declared: bool = True) -> OutgoingTopic:
    topic = OutgoingTopic(number, subject, Source("n", bytes(12), 1), is_reliable=True)
    topic.takers = 1
    topic.is_declared = is_declared
    return topic


def publish(framer: Framer, topic: OutgoingTopic, *payloads: bytes, now: int = 0) -> None:
    for payload in payloads:
        framer.add(topic, payload, now)


Frame = tuple[str, list[tuple[int, int]], int]


def drain(framer: Framer, now: int = 0) -> list[Frame]:
    """Make all frames; return of each its kind, its (topic, sequence) pairs and its size."""
    frames: list[Frame] = []
    while (made := framer.next_body(now, 0)) is not None:
        body = made[0]
        if isinstance(body, bytes):
            decoded = batch.decode(body, 0, len(body))
            assert decoded is not None
            held = [(t, first + i) for t, first, count in decoded.runs for i in range(count)]
            frames.append(("data", held, len(body)))
        else:
            topic, sequence, *_ = batch._SEGMENT.unpack(body[0])
            frames.append(("segment", [(topic, sequence)], body_bytes(body)))
    return frames


def test_quiet_framer_is_ready_at_once_and_frames_one_message() -> None:
    framer, topic = make_framer(), make_topic()
    publish(framer, topic, b"x")
    assert framer.is_ready(0) and framer.deadline() is None
    assert [held for _, held, _ in drain(framer)] == [[(16, 1)]]


def test_busy_framer_waits_until_a_frame_is_full_or_the_holdback_is_over() -> None:
    framer, topic = make_framer(), make_topic()
    for _ in range(BUSY_MESSAGES + 1):
        publish(framer, topic, b"x" * 10)
        drain(framer)
    publish(framer, topic, b"x" * 10)
    assert framer.is_busy and not framer.is_ready(0)
    assert framer.is_ready(1 * MS) and framer.deadline() == 1 * MS
    publish(framer, topic, *([b"x" * 10] * 100))
    assert framer.is_ready(0)


def test_holdback_of_zero_never_holds_back() -> None:
    framer, topic = make_framer(holdback_ns=0), make_topic()
    for _ in range(10 * BUSY_MESSAGES):
        publish(framer, topic, b"x")
        assert framer.is_ready(0)
        drain(framer)


def test_framer_that_had_little_to_do_of_late_calms_down() -> None:
    framer, topic = make_framer(), make_topic()
    for _ in range(BUSY_MESSAGES + 1):
        publish(framer, topic, b"x")
        drain(framer)
    framer.calm(500 * US)
    assert framer.is_busy
    framer.calm(2 * BUSY_WINDOW + 1)
    assert not framer.is_busy and framer.deadline() is None


def test_framer_that_stays_busy_holds_back_on() -> None:
    framer, topic = make_framer(), make_topic()
    for _ in range(2):
        publish(framer, topic, *([b"x"] * (BUSY_MESSAGES + 1)))
        drain(framer, now=2 * MS)
    framer.calm(3 * MS)
    assert framer.is_busy and framer.deadline() == 4 * MS


def test_first_message_after_its_publisher_waited_goes_at_once_on_a_busy_stream_too() -> None:
    framer, topic = make_framer(), make_topic()
    for _ in range(BUSY_MESSAGES + 1):
        publish(framer, topic, b"x")
        drain(framer)
    now = 0
    for _ in range(5):  # Answers come one after the other: they do not make it busy again.
        now += 100 * US
        framer.pause(now)
        publish(framer, topic, b"x", now=now)
        assert framer.is_ready(now)
        drain(framer, now)
        assert not framer.is_busy
    publish(framer, topic, b"x", now=now)  # One that comes right behind it does.
    drain(framer, now)
    publish(framer, topic, b"x", now=now)
    assert framer.is_busy and not framer.is_ready(now)


def test_who_waits_in_between_and_publishes_little_is_never_held_back() -> None:
    framer, topic = make_framer(), make_topic()
    framer.pause(0)
    for _ in range(BUSY_MESSAGES):
        publish(framer, topic, b"x")
        assert framer.is_ready(0)
        drain(framer)
    assert not framer.is_busy


def test_no_frame_is_larger_than_the_bound_and_full_ones_hold_many() -> None:
    framer, topic = make_framer(), make_topic()
    publish(framer, topic, *(bytes(size % 97) for size in range(2000)))
    frames = drain(framer)
    assert max(size for _, _, size in frames) <= framer.body_bytes_max
    assert len(frames) < 150
    assert [key for _, held, _ in frames for key in held] == [(16, n) for n in range(1, 2001)]


@pytest.mark.parametrize("excess", range(-12, 4))
def test_message_about_as_long_as_a_frame_never_overflows_it(excess: int) -> None:
    framer, topic = make_framer(), make_topic()
    publish(framer, topic, bytes(framer.message_bytes_max + excess), b"next")
    frames = drain(framer)
    assert max(size for _, _, size in frames) <= framer.body_bytes_max
    assert frames[-1][1][-1] == (16, 2)


@pytest.mark.parametrize("excess", [-200, -100, -60, -30, -9, -8, 0, 1])
def test_declaration_never_makes_a_frame_too_large(excess: int) -> None:
    framer = make_framer()
    topic = make_topic(subject="/" + "s" * 100, is_declared=False)
    publish(framer, topic, bytes(framer.message_bytes_max + excess))
    frames = drain(framer)
    assert max(size for _, _, size in frames) <= framer.body_bytes_max
    assert frames[-1][1] == [(16, 1)]


def test_first_frame_of_a_topic_declares_it_and_the_second_does_not() -> None:
    framer, topic = make_framer(), make_topic(subject="/plant/temp", is_declared=False)
    publish(framer, topic, b"x")
    made = framer.next_body(0, 0)
    assert made is not None and isinstance(made[0], bytes) and made[1] & DECLARES
    body = batch.decode(made[0], 0, len(made[0]))
    assert body is not None
    (declared,) = decode_declarations(body.declarations) or []
    assert (declared.number, declared.subject, declared.first) == (16, "/plant/temp", 1)
    publish(framer, topic, b"y")
    made = framer.next_body(0, 0)
    assert made is not None and not made[1] & DECLARES


def test_messages_of_several_topics_share_a_frame_in_runs() -> None:
    framer, first, second = make_framer(), make_topic(16), make_topic(17, "/b")
    framer.batch_count = 100
    publish(framer, first, b"1", b"2")
    publish(framer, second, b"1")
    publish(framer, first, b"3")
    assert [held for _, held, _ in drain(framer)] == [[(16, 1), (16, 2), (17, 1), (16, 3)]]


def test_messages_published_seconds_apart_may_share_a_frame() -> None:
    framer, topic = make_framer(), make_topic()
    framer.batch_count = 100
    publish(framer, topic, b"1", now=0)
    publish(framer, topic, b"2", now=2**32)
    publish(framer, topic, b"3", now=0)
    assert [held for _, held, _ in drain(framer)] == [[(16, 1), (16, 2), (16, 3)]]


def test_messages_for_nobody_elsewhere_are_numbered_and_looped_back_but_not_framed() -> None:
    framer, topic = make_framer(), make_topic()
    topic.takers = 0
    topic.sinks = ("somebody here",)
    publish(framer, topic, b"1", bytes(5000))
    assert drain(framer) == []
    assert [(each.first, len(each.payloads[0])) for each in framer.loopback] == [(1, 1), (2, 5000)]
    assert topic.next_sequence == 3


def test_large_message_lets_small_ones_of_other_topics_pass() -> None:
    framer, large, small = make_framer(), make_topic(16), make_topic(17, "/b")
    publish(framer, large, bytes(10_000))
    publish(framer, small, *([b"x" * 600] * 4))
    kinds = [kind for kind, _, _ in drain(framer)]
    assert kinds[:4] == ["segment", "data", "segment", "data"]
    assert kinds.count("segment") == 8


def test_small_message_behind_a_large_one_of_its_topic_is_framed_after_its_last_segment() -> None:
    framer, topic, other = make_framer(), make_topic(16), make_topic(17, "/b")
    publish(framer, topic, bytes(5000), b"2")
    publish(framer, other, b"1")
    publish(framer, topic, bytes(3000), b"4")
    keys = [held for _, held, _ in drain(framer)]
    assert [key for key in keys if key[0][0] == 16] == (
        [[(16, 1)]] * 4 + [[(16, 2)]] + [[(16, 3)]] * 3 + [[(16, 4)]]
    )
    assert framer.large_bytes == 0 and not framer.has_work and not framer.behind


def test_what_waits_behind_a_large_message_is_bounded_by_the_backlog() -> None:
    framer, topic = make_framer(), make_topic()
    framer.backlog_cells = 3 * 10
    publish(framer, topic, bytes(100_000), *([b"x"] * 1000))
    for _ in range(20):
        framer.next_body(0, 0)
    assert len(framer.behind[topic]) <= 3 * 12
    assert framer.pending_count >= 988


def test_topic_behind_what_follows_a_large_message_is_declared_alone_if_both_do_not_fit() -> None:
    framer, topic, fresh = make_framer(), make_topic(), make_topic(17, "/b", is_declared=False)
    publish(framer, topic, bytes(2 * framer.stride), b"follows")
    publish(framer, fresh, bytes(framer.message_bytes_max))
    frames = drain(framer)
    assert all(size <= framer.body_bytes_max for _, _, size in frames)
    assert sorted(held for kind, held, _ in frames if kind == "data") == [[], [(16, 2)], [(17, 1)]]


def test_topic_of_a_large_message_is_declared_before_its_first_segment() -> None:
    framer, topic = make_framer(), make_topic(is_declared=False)
    publish(framer, topic, bytes(3000))
    made = framer.next_body(0, 0)
    assert made is not None and made[1] == DECLARES
    assert [kind for kind, _, _ in drain(framer)] == ["segment"] * 3


def test_large_messages_are_gathered_where_memory_is_shared_up_to_what_goes_at_once() -> None:
    framer, topic = make_framer(), make_topic()
    size_bytes = 1 << 20
    assert not framer.gathers(size_bytes)
    framer.is_near = True
    framer.refer = lambda payloads, route: []
    assert framer.gathers(size_bytes)
    assert not framer.gathers(framer.message_bytes_max)
    count = 0
    while framer.gathers(size_bytes):
        publish(framer, topic, bytes(size_bytes))
        count += 1
    assert framer.large_bytes == count * size_bytes < REFERRED_BYTES_AT_ONCE
    publish(framer, topic, bytes(size_bytes))  # Which is sent with them, for it goes the other way.
    assert framer.has_frame

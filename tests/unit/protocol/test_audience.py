"""Who a frame is for: receiver field, bitmap, overflow, and frames of one audience."""

from collections.abc import Iterable

import pytest

from hubbub.limits import MS
from hubbub.message import Source
from hubbub.protocol.audience import ANYBODY, NO_AUDIENCE, Roll, make_audience, unite
from hubbub.protocol.framing import Framer
from hubbub.protocol.topics import OutgoingTopic
from hubbub.wire import batch
from hubbub.wire.header import MANY, NO_INDEX, NOBODY, OPEN_BITMAP, RELIABLE

SOURCE = Source("a", bytes(12), 1)


def call(indices: Iterable[int]) -> tuple[int, int, int]:
    roll = Roll()
    for index in indices:
        roll.add(index)
    audience = roll.audience()
    return audience.receiver, audience.bitmap, audience.flags


@pytest.mark.parametrize(
    ("indices", "receiver", "bitmap", "flags"),
    [
        ([], NOBODY, 0, 0),
        ([0], 0, 1, 0),
        ([10], 10, 1 << 10, 0),
        ([32], 32, 1 << 32, 0),
        ([63], 63, 1 << 63, 0),
        ([64], MANY, 0, OPEN_BITMAP),
        ([69], MANY, 0, OPEN_BITMAP),
        ([NO_INDEX], MANY, 0, OPEN_BITMAP),
        ([3, 5], MANY, 0b101000, 0),
        ([3, 3], MANY, 0b1000, 0),
        ([3, 69], MANY, 0b1000, OPEN_BITMAP),
    ],
)
def test_receivers_of_these_indices_are_written_as(
    indices: list[int], receiver: int, bitmap: int, flags: int
) -> None:
    assert call(indices) == (receiver, bitmap, flags)


def test_bit_is_cleared_with_its_last_receiver_only() -> None:
    roll = Roll()
    for index in (3, 3, 5, 70):
        roll.add(index)
    roll.remove(3)
    assert roll.audience() is make_audience(MANY, 0b101000, OPEN_BITMAP)
    roll.remove(3)
    roll.remove(70)
    assert roll.audience() is make_audience(5, 0b100000, 0)
    roll.remove(5)
    assert roll.audience() is NO_AUDIENCE


def test_frame_of_several_audiences_is_for_all_of_them() -> None:
    three, five = make_audience(3, 8, 0), make_audience(5, 32, 0)
    assert unite([three, three]) is three
    assert unite([three, five]) is make_audience(MANY, 40, 0)
    assert unite([three, ANYBODY]) is make_audience(MANY, 8, OPEN_BITMAP)


def make_topic(number: int, index: int) -> OutgoingTopic:
    topic = OutgoingTopic(number, f"/{number}", SOURCE, is_reliable=True)
    topic.is_declared = True
    topic.enlist(index)
    return topic


def test_frames_of_a_backlog_hold_one_audience_each_and_topics_stay_in_order() -> None:
    framer = Framer(RELIABLE, 1400, 1 * MS, 20, 1 << 20)
    topics = [make_topic(16, 3), make_topic(17, 5), make_topic(18, 3)]
    for number in range(600):
        framer.add(topics[number % 3], b"%050d" % number, 0)
    got: dict[int, list[bytes]] = {}
    pure = frames = 0
    while (made := framer.next_body(0, 0)) is not None:
        body, _, audience = made
        assert isinstance(body, bytes)
        decoded = batch.decode(body, 0, len(body))
        assert decoded is not None
        numbers = {number for number, _, _ in decoded.runs}
        assert audience is unite(topic.audience for topic in topics if topic.number in numbers)
        frames += 1
        pure += audience.receiver != MANY
        at = 0
        for number, first, count in decoded.runs:
            known = got.setdefault(number, [])
            assert first == len(known) + 1
            known += decoded.payloads[at : at + count]
            at += count
    for place, topic in enumerate(topics):
        assert got[topic.number] == [b"%050d" % number for number in range(place, 600, 3)]
    # Unsorted it were 46 frames, all of them for both.
    assert frames <= 46 and pure >= 0.8 * frames


def test_few_messages_of_several_audiences_share_a_frame() -> None:
    framer = Framer(RELIABLE, 1400, 1 * MS, 20, 1 << 20)
    framer.batch_count = 100
    for index in range(10):
        framer.add(make_topic(16 + index, index), b"x", 0)
    made = framer.next_body(0, 0)
    assert made is not None and made[2] is make_audience(MANY, 0x3FF, 0)
    assert framer.next_body(0, 0) is None

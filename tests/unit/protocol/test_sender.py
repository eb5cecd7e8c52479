"""The sending end of a stream: bursts, windows, repairs, and the tail."""

from itertools import count

import pytest

from hubbub.limits import FRAME_COST_BYTES, GRTT_FLOOR, MS, TAIL_HEARTBEAT, WINDOW_BYTES_MIN
from hubbub.message import Source
from hubbub.protocol.burst import Burst
from hubbub.protocol.cache import Cache
from hubbub.protocol.flow import Flow
from hubbub.protocol.framing import Framer
from hubbub.protocol.sender import Sender
from hubbub.protocol.topics import OutgoingTopic
from hubbub.wire import header
from hubbub.wire.control import Status
from hubbub.wire.header import ASK, DATA, HEADER_BYTES, RELIABLE, REPAIR

KEY = b"r" * 20
FRAME_BYTES = 1400
ADDRESS = ("10.0.0.2", 7266)
BUDGET = 1 << 20


class Stream:
    """A reliable sender with one topic and one receiver."""

    def __init__(self, *, burst_bytes_max: int = 0, window_bytes: int = 1 << 20) -> None:
        framer = Framer(RELIABLE, FRAME_BYTES, 1 * MS, 1e9, 1 << 20)
        self.flow = Flow(200 * MS, 1 << 20)
        self.cache = Cache(1 << 20, 10**12)
        self.sender = Sender(
            RELIABLE, framer, self.flow, self.cache,
            lambda kind, flags, stream, _: header.prefix(kind, flags, stream, 0, bytes(20), 8),
            count(1), burst_bytes_max,
        )  # fmt: skip
        self.topic = OutgoingTopic(16, "/a", Source("n", bytes(12), 1), is_reliable=True)
        self.topic.takers = 1
        self.topic.is_declared = True
        self.flow.add(KEY, 0, 1, 0, window_bytes)

    def publish(self, *payloads: bytes) -> None:
        for payload in payloads:
            self.sender.framer.add(self.topic, payload, 0)

    def drain(self, now: int = 0) -> list[Burst]:
        bursts = []
        while (burst := self.sender.next_burst(now, 0)) is not None:
            bursts.append(burst)
        return bursts

    def acknowledge(self, contiguous: int) -> None:
        state = self.flow.receivers[KEY]
        status = Status(KEY, 0, 0, contiguous, contiguous, state.window_bytes, 0, 0)
        sender = self.sender
        base = sender.position_of(contiguous)
        self.flow.update(0, state, status, sender.next_sequence, sender.position, base)
        sender.acknowledged()


def frames(bursts: list[Burst]) -> list[header.Header]:
    """Take bursts apart as the kernel would."""
    found = []
    for burst in bursts:
        data = b"".join(burst.buffers)
        step = burst.segment_bytes or len(data)
        for start in range(0, len(data), step):
            frame = data[start : start + step]
            assert len(frame) <= FRAME_BYTES
            decoded = header.decode(frame)
            assert header.is_intact(frame, 0, len(frame), decoded.checksum)
            found.append(decoded)
    return found


def test_frames_are_numbered_in_order_and_packets_never_repeat() -> None:
    stream = Stream()
    stream.publish(*[bytes(1000)] * 5)
    sent = frames(stream.drain())
    stream.sender.request(0, KEY, ADDRESS, [(2, 2)], BUDGET)
    sent += frames(stream.drain())
    assert [each.sequence for each in sent] == [1, 2, 3, 4, 5, 2, 3]
    assert len({each.packet for each in sent}) == 7


@pytest.mark.parametrize("sizes", [[1000] * 30, [1, 1300, 2, 1200] * 10, [5000, 10, 3000, 1]])
def test_all_frames_of_a_burst_but_the_last_have_one_size(sizes: list[int]) -> None:
    stream = Stream(burst_bytes_max=65_000)
    stream.publish(*map(bytes, sizes))
    bursts = stream.drain()
    assert len(bursts) < len(sizes)
    assert all(sum(map(len, burst.buffers)) <= 65_000 for burst in bursts)
    sequences = [each.sequence for each in frames(bursts)]
    assert sequences == list(range(1, len(sequences) + 1))


def test_padding_makes_no_burst_too_long() -> None:
    stream = Stream(burst_bytes_max=1700)
    stream.publish(bytes(100), bytes(1270), bytes(1270))
    bursts = stream.drain()
    assert len(frames(bursts)) == 3
    assert all(sum(map(len, burst.buffers)) <= 1700 for burst in bursts)


def test_full_window_stops_the_stream_and_its_last_frame_asks() -> None:
    stream = Stream(window_bytes=WINDOW_BYTES_MIN)
    stream.publish(*[bytes(1000)] * 100)
    sent = frames(stream.drain())
    assert stream.sender.is_blocked() and stream.sender.position <= WINDOW_BYTES_MIN
    assert [bool(each.flags & ASK) for each in sent] == [False] * (len(sent) - 1) + [True]
    assert stream.flow.blocked_since_ns == 0
    stream.acknowledge(len(sent) + 1)
    assert len(frames(stream.drain())) == len(sent)


@pytest.mark.parametrize("size", [1000, 300_000])
def test_stopped_stream_goes_on_when_an_eighth_of_the_window_is_free(size: int) -> None:
    """Not for each frame that fits: it would ask, be answered, and be followed by one for ever."""
    stream = Stream(burst_bytes_max=64_000, window_bytes=1 << 17)
    stream.publish(*[bytes(size)] * (600_000 // size))
    frames(stream.drain())
    sender, acknowledged = stream.sender, 2
    assert stream.flow.limit is not None
    while stream.flow.limit - sender.position < (1 << 17) // 8:
        assert stream.drain() == []
        assert sender.is_waiting() and stream.flow.blocked_since_ns == 0
        stream.acknowledge(acknowledged)
        acknowledged += 1
    assert acknowledged > 6
    sent = frames(stream.drain())
    assert len(sent) > acknowledged // 2
    assert [bool(each.flags & ASK) for each in sent] == [False] * (len(sent) - 1) + [True]


def test_stopped_stream_goes_on_when_all_has_come_however_small_the_window_is() -> None:
    stream = Stream(window_bytes=WINDOW_BYTES_MIN)
    stream.publish(*[bytes(1000)] * 40)
    while stream.sender.framer.has_work:
        sent = frames(stream.drain())
        assert sent
        stream.flow.resume_bytes = 1 << 20  # As if it had just become smaller.
        stream.acknowledge(stream.sender.next_sequence)


def test_one_frame_may_always_go_when_nothing_is_under_way() -> None:
    stream = Stream(window_bytes=WINDOW_BYTES_MIN)
    stream.flow.receivers[KEY].limit = stream.flow.limit = 10
    stream.publish(b"x", b"y")
    assert len(frames(stream.drain())) == 1


def test_held_stream_sends_nothing() -> None:
    stream = Stream()
    stream.sender.is_held = True
    stream.publish(b"x")
    assert stream.drain() == []
    stream.sender.is_held = False
    assert len(stream.drain()) == 1


def test_frames_for_one_who_is_away_are_kept_but_not_sent() -> None:
    stream = Stream()
    stream.flow.set_lost(KEY, 1, is_lost=True)
    stream.publish(bytes(1000), bytes(1000))
    assert stream.drain() == []
    assert sorted(stream.cache.bodies) == [1, 2]


def test_repairs_go_first_but_only_every_other_burst() -> None:
    stream = Stream()
    stream.publish(*[bytes(1200)] * 4)
    stream.drain()
    stream.publish(*[bytes(1200)] * 4)
    stream.sender.request(0, KEY, ADDRESS, [(1, 4)], BUDGET)
    flags = [each.flags & REPAIR for each in frames(stream.drain())]
    assert flags == [REPAIR, 0] * 4


def test_repair_of_a_lone_receiver_goes_to_it_alone_and_of_many_to_the_group() -> None:
    stream = Stream()
    stream.publish(bytes(1200), bytes(1200))
    stream.drain()
    stream.sender.request(0, KEY, ADDRESS, [(1, 1)], BUDGET)
    assert [burst.destination for burst in stream.drain()] == [ADDRESS]
    stream.flow.add(b"s" * 20, 0, 1, 0, 1 << 20)
    stream.sender.request(0, KEY, ADDRESS, [(2, 1)], BUDGET)
    assert [burst.destination for burst in stream.drain()] == [None]


def test_last_repair_asks_how_far_its_receiver_is_while_the_window_is_full() -> None:
    stream = Stream(window_bytes=WINDOW_BYTES_MIN)
    stream.publish(*[bytes(1200)] * 40)
    stream.drain()
    assert stream.sender.is_blocked()
    stream.sender.request(0, KEY, ADDRESS, [(1, 2)], BUDGET)
    assert [each.flags & ASK for each in frames(stream.drain())] == [ASK, ASK]
    stream.acknowledge(5)
    stream.drain()
    stream.acknowledge(stream.sender.next_sequence - 1)
    stream.sender.request(0, KEY, ADDRESS, [(stream.sender.next_sequence - 1, 1)], BUDGET)
    repairs = [each for each in frames(stream.drain()) if each.flags & REPAIR]
    assert [each.flags & ASK for each in repairs] == [0]


@pytest.mark.parametrize("receivers", [1, 2])
def test_repair_on_its_way_is_not_sent_again(receivers: int) -> None:
    stream = Stream()
    for other in range(1, receivers):
        stream.flow.add(bytes([other]) * len(KEY), 0, 1, 0, 1 << 20)
    stream.publish(b"x")
    stream.drain()
    # One receiver knows what it lacks; the requests of several cross each other.
    linger = GRTT_FLOOR if receivers == 1 else stream.flow.grtt_ns
    for now, expected in [(0, 1), (linger - 1, 0), (linger, 1)]:
        stream.sender.request(now, KEY, ADDRESS, [(1, 1)], BUDGET)
        assert len(stream.drain(now)) == expected


def test_lone_requester_gets_the_whole_repair_budget() -> None:
    stream = Stream()
    stream.publish(*[bytes(1200)] * 100)
    stream.drain()
    stream.sender.request(0, KEY, ADDRESS, [(1, 100)], 40 * 1240)
    assert 39 <= len(stream.sender.repairs) <= 41


def test_one_requester_of_several_gets_a_quarter_of_the_repair_budget() -> None:
    stream = Stream()
    stream.flow.add(b"another".ljust(20), 0, 1, 0, 1 << 20)
    stream.publish(*[bytes(1200)] * 100)
    stream.drain()
    budget = 40 * 1240
    stream.sender.request(0, KEY, ADDRESS, [(1, 100)], budget)
    assert 10 <= len(stream.sender.repairs) <= 11
    for _ in range(9):
        stream.sender.request(0, KEY, ADDRESS, [(1, 100)], budget)
    assert stream.sender.repair_bytes <= budget + 1400


def test_stranger_and_latecomer_are_told_to_skip() -> None:
    stream = Stream()
    stream.publish(*[bytes(1000)] * 5)
    stream.drain()
    stream.flow.add(b"late" * 5, 0, 4, 0, 1 << 20)
    assert stream.sender.request(0, b"who?" * 5, ADDRESS, [(1, 9)], BUDGET) == ([1, 2, 3, 4, 5], [])
    assert stream.sender.request(0, b"late" * 5, ADDRESS, [(2, 3)], BUDGET) == ([2, 3], [])
    assert list(stream.sender.repairs) == [4]


def test_frames_no_longer_kept_are_named_with_their_messages() -> None:
    stream = Stream()
    stream.publish(*[bytes(1200)] * 6)
    stream.drain()
    stream.cache.age_ns = -1
    stream.cache.expire(0)
    skipped, gone = stream.sender.request(0, KEY, ADDRESS, [(1, 3), (5, 9)], BUDGET)
    assert (skipped, gone) == ([], [1, 2, 3, 5, 6])
    assert list(stream.sender.describe_lost(gone, 1000)) == [
        ([(1, 3), (5, 2)], [(16, 1, 3), (16, 5, 2)])
    ]


def test_pieces_of_one_lost_message_are_one_run() -> None:
    stream = Stream()
    stream.publish(bytes(100_000))
    stream.drain()
    stream.cache.age_ns = -1
    stream.cache.expire(0)
    (part,) = stream.sender.describe_lost(list(range(1, 70)), 1000)
    assert part == ([(1, 69)], [(16, 1, 1)])


def test_description_of_lost_frames_never_outgrows_a_frame() -> None:
    stream = Stream()
    others = []
    for number in range(40):
        topic = OutgoingTopic(100 + number, f"/{number}", stream.topic.source, is_reliable=True)
        topic.takers, topic.is_declared = 1, True
        others.append(topic)
    for _ in range(50):
        for topic in others:
            topic.next_sequence += 1  # So that no two runs join.
            stream.sender.framer.add(topic, b"x", 0)
    stream.drain()
    lost = list(range(1, stream.sender.next_sequence, 2))
    stream.cache.age_ns = -1
    stream.cache.expire(0)
    parts = list(stream.sender.describe_lost(lost, 1274))
    assert len(parts) > 1
    assert all(12 * len(spans) + 16 * len(runs) <= 1274 for spans, runs in parts)
    named = [first + i for spans, _ in parts for first, length in spans for i in range(length)]
    assert named == lost


def test_tail_is_told_soon_then_doubling_until_all_is_acknowledged() -> None:
    stream = Stream()
    stream.publish(b"x")
    stream.drain()
    told = []
    for now in range(0, 200 * MS, MS):
        if stream.sender.is_tail_due(now):
            stream.sender.tell_tail(now)
            told.append(now)
    assert told == [TAIL_HEARTBEAT * factor for factor in (1, 3, 7, 15)]
    stream.acknowledge(2)
    assert stream.sender.tail_ns is None


def test_position_of_a_frame_that_is_gone_is_where_the_oldest_kept_begins() -> None:
    stream = Stream()
    stream.publish(*[bytes(1000)] * 4)
    stream.drain()
    size = stream.sender.position // 4
    assert size > 1000 + FRAME_COST_BYTES
    stream.cache._evict(1)
    assert stream.sender.position_of(1) == size
    assert stream.sender.position_of(3) == 2 * size
    assert stream.sender.position_of(5) == stream.sender.position


def test_header_room_is_left_for_a_tag() -> None:
    stream = Stream()
    stream.publish(bytes(10_000))
    assert max(len(b"".join(burst.buffers)) for burst in stream.drain()) == FRAME_BYTES - 16
    assert stream.sender.framer.body_bytes_max == FRAME_BYTES - HEADER_BYTES - 16


def test_train_of_pieces_is_what_single_frames_would_be() -> None:
    payload = bytes(range(256)) * 400  # 102,400 bytes: 81 pieces and a short one.
    at_once, one_by_one = Stream(burst_bytes_max=64_000), Stream(burst_bytes_max=0)
    for stream in (at_once, one_by_one):
        stream.publish(payload)
    joined = b"".join(b"".join(burst.buffers) for burst in at_once.drain())
    assert joined == b"".join(b"".join(burst.buffers) for burst in one_by_one.drain())
    assert at_once.cache.bodies == one_by_one.cache.bodies
    assert at_once.cache.positions == one_by_one.cache.positions
    assert at_once.sender.position == one_by_one.sender.position
    assert at_once.cache.size_bytes == one_by_one.cache.size_bytes


def test_large_message_is_a_train_from_its_first_piece_on() -> None:
    stream = Stream(burst_bytes_max=64_000)
    stream.publish(bytes(200_000))
    cut = stream.sender.framer.cut_train(0, 10)
    assert cut is not None
    assert (cut[1].offset, cut[1].frames) == (0, 10)


def test_short_last_piece_ends_the_burst_of_a_train() -> None:
    stream = Stream(burst_bytes_max=64_000)
    stream.publish(bytes(102_400))  # 80 pieces and a short one, 46 to a burst.
    bursts = stream.drain()
    assert [len(frames([burst])) for burst in bursts] == [46, 35]
    assert sum(map(len, bursts[1].buffers)) % bursts[1].segment_bytes != 0
    assert not stream.sender.framer.has_work


def test_frames_of_a_train_are_repaired_one_by_one() -> None:
    stream = Stream(burst_bytes_max=64_000)
    stream.publish(bytes(range(256)) * 400)
    sent = b"".join(stream.drain()[0].buffers)
    stream.sender.request(0, KEY, ADDRESS, [(5, 2)], BUDGET)
    [burst] = stream.drain()
    step, repaired = burst.segment_bytes, b"".join(burst.buffers)
    for place, number in enumerate((4, 5)):
        body = repaired[place * step + HEADER_BYTES : (place + 1) * step]
        assert body == sent[number * step + HEADER_BYTES : (number + 1) * step]
    assert all(each.flags & REPAIR for each in frames([burst]))


def test_message_of_a_few_pieces_is_one_burst() -> None:
    stream = Stream(burst_bytes_max=64_000)
    stream.publish(bytes(5_000), bytes(5_000))
    cut = stream.sender.framer.cut_train(0, 10)
    assert cut is not None and cut[1].frames == 3
    stream = Stream(burst_bytes_max=64_000)
    stream.publish(bytes(5_000), bytes(5_000))
    assert [len(frames([burst])) for burst in stream.drain()] == [4, 4]


def test_many_messages_of_its_topic_may_wait_behind_a_train() -> None:
    payloads = [bytes([number]) * 10_000 for number in range(40)]
    stream = Stream(burst_bytes_max=64_000)
    stream.publish(*payloads)
    framer, trains = stream.sender.framer, []
    while (cut := framer.cut_train(0, 10)) is not None:
        trains.append(cut[1])
        framer.cut_next()
    assert [each.payload for each in trains] == payloads
    assert [each.about[1] for each in trains] == list(range(1, 41))


def test_train_stays_within_the_window_and_its_end_asks() -> None:
    stream = Stream(burst_bytes_max=64_000, window_bytes=40_000)
    stream.publish(bytes(200_000))
    sent = frames(stream.drain())
    assert stream.sender.is_blocked()
    assert stream.flow.limit is not None and stream.sender.position <= stream.flow.limit
    assert [bool(each.flags & ASK) for each in sent] == [False] * (len(sent) - 1) + [True]
    stream.acknowledge(len(sent) + 1)
    assert stream.cache.bodies == {} and stream.cache.size_bytes == 0
    assert stream.drain()


def test_frame_that_asks_goes_in_the_burst_that_fills_the_window() -> None:
    stream = Stream(burst_bytes_max=64_000, window_bytes=40_000)
    stream.publish(bytes(200_000))
    (burst,) = stream.drain()
    assert frames([burst])[-1].flags & ASK
    assert sum(map(len, burst.buffers)) % burst.segment_bytes == 0


def test_small_messages_go_between_the_pieces_of_a_large_one() -> None:
    stream = Stream(burst_bytes_max=64_000)
    stream.publish(bytes(200_000))
    assert stream.sender.next_burst(0, 0) is not None
    other = OutgoingTopic(17, "/b", Source("n", bytes(12), 1), is_reliable=True)
    other.enlist(0)
    other.is_declared = True
    stream.sender.framer.add(other, b"small", 0)
    burst = stream.sender.next_burst(0, 0)
    assert burst is not None
    assert DATA in [each.kind for each in frames([burst])]

"""The express lanes: a frame and a message take a short way, and come out as by the long one."""

from random import Random
from typing import Any

import pytest

from hubbub.limits import ALONE_BYTES_MIN, MS, REFERRED_BYTES_AT_ONCE
from hubbub.message import Passage
from hubbub.protocol.burst import Burst, Pipes
from hubbub.protocol.sender import Sender
from hubbub.protocol.topics import OutgoingTopic
from hubbub.wire.batch import encode_reference
from hubbub.wire.header import (
    CHECKSUM_OFFSET,
    DATA,
    HEADER_BYTES,
    MANY,
    PREFIX_BYTES,
    REFERS,
)
from tests.harness import Lan, Node


def meet(lan: Lan) -> tuple[Node, Node]:
    publisher = lan.add()
    (subscriber,) = lan.open(1)
    return publisher, subscriber


def begin_topic(lan: Lan, publisher: Node) -> OutgoingTopic:
    """Publish a first message: it declares the topic, and later ones may go alone."""
    topic = publisher.core.publish_on(lan.now, "/a")
    lan.publish(publisher, topic, b"first")
    lan.run(30 * MS)
    return topic


def state_of(node: Node) -> list[object]:
    peer = next(iter(node.core.peers.values()))
    receiver = peer.incoming[1]
    topics = [
        (t.subject, t.expected, dict(t.waiting), t.duplicates) for t in receiver.topics.values()
    ]
    return [receiver.next, receiver.fresh_bytes, receiver.duplicates, receiver.malformed, topics]


def test_express_lane_ends_in_the_state_of_the_ordinary_way() -> None:
    def run(*, is_express: bool) -> tuple[list[bytes], list[object], int]:
        lan = Lan(seed=3)
        publisher, subscriber = meet(lan)
        topic = publisher.core.publish_on(lan.now, "/a")
        random = Random(5)
        taken = 0
        lan.lose = lambda datagram, _: datagram.kind == DATA and random.random() < 0.1
        for number in range(300):
            if not is_express:
                subscriber.core.express.close()
            taken += bool(subscriber.core.express.lanes)
            lan.publish(publisher, topic, b"%d" % number)
            lan.run(3 * MS)
        lan.run(500 * MS)
        return subscriber.payloads("/a"), state_of(subscriber), taken

    by_express, by_ordinary = run(is_express=True), run(is_express=False)
    assert by_express[0] == by_ordinary[0] == [b"%d" % number for number in range(300)]
    assert by_express[1] == by_ordinary[1]
    assert by_express[2] > 100
    assert by_ordinary[2] == 0


def test_express_lane_refuses_a_damaged_a_short_and_a_second_copy() -> None:
    lan = Lan()
    publisher, subscriber = meet(lan)
    topic = publisher.core.publish_on(lan.now, "/a")
    for payload in (b"one", b"two"):
        lan.publish(publisher, topic, payload)
        lan.run(1 * MS)
    express = subscriber.core.express
    assert express.lanes
    lan.lose = lambda *_: True
    lan.publish(publisher, topic, b"three")
    frame = lan.sent[-1].data
    assert frame[:PREFIX_BYTES] in express.lanes
    for place in range(PREFIX_BYTES, len(frame)):
        damaged = frame[:place] + bytes([frame[place] ^ 1]) + frame[place + 1 :]
        assert express.take(lan.now, damaged, publisher.address, 0) is None
        assert express.take(lan.now, frame[:place], publisher.address, 0) is None
    delivery = express.take(lan.now, frame, publisher.address, 0)
    assert delivery is not None
    assert delivery.payloads == [b"three"]
    assert express.take(lan.now, frame, publisher.address, 0) is None


def test_express_lanes_close_when_the_interest_changes() -> None:
    lan = Lan()
    publisher, subscriber = meet(lan)
    topic = publisher.core.publish_on(lan.now, "/a")
    for payload in (b"one", b"two"):
        lan.publish(publisher, topic, payload)
        lan.run(1 * MS)
    assert subscriber.core.express.lanes
    subscriber.core.unsubscribe(lan.now, "/...")
    assert not subscriber.core.express.lanes


def test_single_message_makes_the_frame_that_its_turn_would_make() -> None:
    frames = []
    for is_single in (True, False):
        lan = Lan()
        publisher, _ = meet(lan)
        topic = begin_topic(lan, publisher)
        sender = publisher.core.outgoing.sender_of(topic)
        if is_single:
            frame = publisher.core.single(lan.now, sender, topic, b"second", lan.now)
            assert frame is not None
            frames.append(frame)
        else:
            lan.publish(publisher, topic, b"second")
            frames.append(lan.sent[-1].data)
        assert sender.next_sequence == 3
        assert topic.next_sequence == 3
    assert frames[0] == frames[1]


def test_single_message_takes_its_turn_behind_others() -> None:
    lan = Lan()
    publisher, _ = meet(lan)
    topic = publisher.core.publish_on(lan.now, "/a")
    sender = publisher.core.outgoing.sender_of(topic)
    assert publisher.core.single(lan.now, sender, topic, b"x", 0) is None  # Not declared yet.
    lan.publish(publisher, topic, b"first")
    lan.run(30 * MS)
    sender.framer.add(topic, b"pending", lan.now)
    assert publisher.core.single(lan.now, sender, topic, b"x", 0) is None


def test_express_lanes_keep_apart_for_whom_frames_are() -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    lan.run(60 * MS)
    (subscriber,) = lan.open(1, "/...")
    lan.open(1, "/b")
    topics = [publisher.core.publish_on(lan.now, name) for name in ("/a", "/b")]
    for topic in topics:
        lan.publish(publisher, topic, b"first")
    lan.run(30 * MS)
    passages: list[object] = []
    sender = publisher.core.outgoing.reliable
    for _ in range(4):
        for topic in topics:
            frame = publisher.core.single(lan.now, sender, topic, b"x", 0)
            assert frame is not None
            subscriber.core.receive(lan.now, frame, 0, publisher.address)
            [delivery] = subscriber.core.deliveries
            passages.append(delivery.link)
            subscriber.core.deliveries.clear()
    assert passages[:2] == [Passage("multicast", 1, 0b10), Passage("multicast", MANY, 0b110)]
    assert passages == passages[:2] * 4 and len(subscriber.core.express.lanes) == 2


LARGE = bytes(100_000)
REFERENCE = encode_reference(0, 4096, len(LARGE))


def share(publisher: Node, subscriber: Node, readable: Any = LARGE) -> Sender:
    """Let the publisher's only way be a pipe, and large payloads go by reference."""
    sender = publisher.core.outgoing.reliable
    sender.framer.reference_bytes = 16 << 10
    sender.framer.refer = lambda payloads, _: [REFERENCE] if payloads == [LARGE] else []
    sender.framer.take_route(Pipes((subscriber.core.endpoint.key,)))
    receiver = next(iter(subscriber.core.peers.values())).incoming[1]
    receiver.resolve = lambda references: (
        [readable] if readable is not None and references == [REFERENCE] else None
    )
    return sender


def test_large_message_makes_the_frame_by_reference_that_its_turn_would_make() -> None:
    frames = []
    for is_single in (True, False):
        lan = Lan()
        publisher, subscriber = meet(lan)
        topic = begin_topic(lan, publisher)
        sender = share(publisher, subscriber)
        if is_single:
            frame = publisher.core.single(lan.now, sender, topic, LARGE, lan.now)
            assert frame is not None
            frames.append(frame)
        else:
            sender.framer.add(topic, LARGE, lan.now)
            burst = publisher.core.next_burst(lan.now)
            assert burst is not None and burst.destination == sender.framer.route
            frames.append(b"".join(burst.buffers))
        assert (sender.next_sequence, topic.next_sequence) == (3, 3)
        assert sender.referred == {2: sender.framer.route}, "nobody else can follow it"
        assert sender.cache is not None and sender.cache.flags == {2: REFERS}
    # Its turn leaves the checksum out, which nobody looks at in a pipe of this host.
    alone, in_turn = ((f[:CHECKSUM_OFFSET], f[HEADER_BYTES:]) for f in frames)
    assert alone == in_turn


def test_large_message_without_room_where_it_is_shared_takes_its_turn() -> None:
    lan = Lan()
    publisher, subscriber = meet(lan)
    topic = begin_topic(lan, publisher)
    sender = share(publisher, subscriber)
    assert publisher.core.single(lan.now, sender, topic, LARGE[:-1], 0) is None
    assert (sender.next_sequence, topic.next_sequence, sender.referred) == (2, 2, {})


def test_large_message_of_a_busy_stream_waits_for_others_unless_it_fills_a_frame_alone() -> None:
    lan = Lan()
    publisher, subscriber = meet(lan)
    begin_topic(lan, publisher)
    framer = share(publisher, subscriber).framer
    assert framer.may_go_alone(LARGE)
    framer.is_busy = True
    assert not framer.may_go_alone(LARGE) and not framer.may_go_alone(b"small")
    assert framer.may_go_alone(bytes(REFERRED_BYTES_AT_ONCE))
    is_read = False
    framer.is_read = lambda route: is_read
    assert not framer.may_go_alone(bytes(ALONE_BYTES_MIN))
    is_read = True
    assert framer.may_go_alone(bytes(ALONE_BYTES_MIN)), "its readers wait for it"
    assert not framer.may_go_alone(bytes(ALONE_BYTES_MIN - 1))
    framer.take_route(None)
    assert not framer.may_go_alone(bytes(REFERRED_BYTES_AT_ONCE)), "it has to be cut"


def test_express_lane_follows_references_and_leaves_those_that_lead_nowhere() -> None:
    for readable in (LARGE, None):
        lan = Lan()
        publisher, subscriber = meet(lan)
        topic = begin_topic(lan, publisher)
        sender = share(publisher, subscriber)
        first, second = (
            publisher.core.single(lan.now, sender, topic, LARGE, lan.now) for _ in range(2)
        )
        assert first is not None and second is not None
        subscriber.core.receive(lan.now, first, 0, publisher.address)
        assert subscriber.core.deliveries.pop().payloads == [LARGE]
        assert first[:PREFIX_BYTES] in subscriber.core.express.lanes
        share(publisher, subscriber, readable)
        taken = subscriber.core.express.take(lan.now, second, publisher.address, 0)
        receiver = next(iter(subscriber.core.peers.values())).incoming[1]
        if readable is None:
            assert taken is None and receiver.next == 3, "as if it had been lost"
        else:
            assert taken is not None and taken.payloads == [LARGE] and receiver.next == 4


def large_lan() -> tuple[Lan, Node, Node, OutgoingTopic]:
    """Let two nodes meet whose frames are joined as the kernel joins them."""
    lan = Lan(burst_bytes_max=64_000)
    publisher, subscriber = meet(lan)
    return lan, publisher, subscriber, begin_topic(lan, publisher)


def send_large(lan: Lan, publisher: Node, topic: OutgoingTopic, payload: bytes) -> list[Burst]:
    publisher.core.outgoing.sender_of(topic).framer.add(topic, payload, lan.now)
    bursts = []
    while (burst := publisher.core.next_burst(lan.now)) is not None:
        bursts.append(burst)
    return bursts


def read(lan: Lan, node: Node, burst: Burst, source: Any, damaged: int | None = None) -> None:
    data = bytearray(b"".join(burst.buffers))
    if damaged is not None:
        data[damaged * burst.segment_bytes + 500] ^= 1
    node.core.receive(lan.now, bytes(data), burst.segment_bytes, source)
    node.drain(lan.now)


def test_whole_bursts_of_a_large_message_take_the_lane_of_its_first_frame() -> None:
    lan, publisher, subscriber, topic = large_lan()
    payload = Random(1).randbytes(300_000)
    ordinary: list[int] = []
    receive_frame = subscriber.core._receive_frame

    def count(*arguments: Any) -> Any:
        ordinary.append(arguments[2])
        return receive_frame(*arguments)

    subscriber.core._receive_frame = count  # type: ignore[method-assign]
    bursts = send_large(lan, publisher, topic, payload)
    for burst in bursts:
        read(lan, subscriber, burst, publisher.address)
    assert subscriber.payloads("/a") == [b"first", payload]
    assert len(bursts) > 4 and len(ordinary) == 2, "the first frame, and the last"
    for burst in send_large(lan, publisher, topic, payload):
        read(lan, subscriber, burst, publisher.address)
    assert subscriber.payloads("/a") == [b"first", payload, payload]
    assert len(ordinary) == 3, "of the second message the last frame alone"


def test_lane_of_large_messages_is_closed_to_other_sources_and_by_what_changes() -> None:
    lan, publisher, subscriber, topic = large_lan()
    bursts = send_large(lan, publisher, topic, bytes(200_000))
    read(lan, subscriber, bursts[0], publisher.address)
    express, data = subscriber.core.express, b"".join(bursts[1].buffers)
    assert express.train_of(data, publisher.address) is not None
    assert express.train_of(data, ("10.0.0.9", 1)) is None
    assert express.train_of(b"\0" + data, publisher.address) is None
    subscriber.core.subscribe(lan.now, "/other")
    assert express.train_of(data, publisher.address) is None


def test_lanes_of_large_messages_are_bounded() -> None:
    _, publisher, subscriber, _ = large_lan()
    peer, express = next(iter(subscriber.core.peers.values())), subscriber.core.express
    for number in range(3000):
        express.open_train(number.to_bytes(PREFIX_BYTES, "big"), 0, peer, publisher.address)
        assert len(express.trains) <= 1024


@pytest.mark.parametrize("damaged", [0, 1, 20, 44])
def test_damaged_frame_in_a_train_is_repaired_and_the_others_are_taken(damaged: int) -> None:
    lan, publisher, subscriber, topic = large_lan()
    payload = Random(1).randbytes(300_000)
    bursts = send_large(lan, publisher, topic, payload)
    for number, burst in enumerate(bursts):
        is_damaged = number == 1
        read(lan, subscriber, burst, publisher.address, damaged if is_damaged else None)
    peer = next(iter(subscriber.core.peers.values()))
    assert len(peer.incoming[1].requester.missing) == 1
    assert subscriber.drops["checksum"] == 1
    lan.run(100 * MS)
    assert subscriber.payloads("/a") == [b"first", payload]


@pytest.mark.parametrize("lost", [0, 2])
def test_lost_burst_of_a_train_is_repaired(lost: int) -> None:
    lan, publisher, subscriber, topic = large_lan()
    payload = Random(1).randbytes(300_000)
    for number, burst in enumerate(send_large(lan, publisher, topic, payload)):
        if number != lost:
            read(lan, subscriber, burst, publisher.address)
    lan.run(200 * MS)
    assert subscriber.payloads("/a") == [b"first", payload]

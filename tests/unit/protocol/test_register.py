"""The register: who has which index, whose frames name whom, and what is dropped on its header."""

import pytest

from hubbub.events import GapAbandoned
from hubbub.limits import INDEX_PATIENCE, MS, SECOND
from hubbub.protocol.peers import Peer
from hubbub.protocol.register import Register
from hubbub.protocol.topics import OutgoingTopic
from hubbub.wire import control, header
from hubbub.wire.control import Heartbeat, Hello
from hubbub.wire.header import (
    DATA,
    HEADER_BYTES,
    HEARTBEAT,
    HELLO,
    MANY,
    NAK,
    NO_INDEX,
    NOBODY,
    OPEN_BITMAP,
)
from tests.harness import Lan, Node


def key(number: int) -> bytes:
    return number.to_bytes(20, "big")


def make_register(number: int, **others: int) -> Register:
    """Make the register of one node that knows others, given as k7=index."""
    register = Register(key(number))
    for name, index in others.items():
        peer = Peer(key(int(name[1:])), ("10.0.0.1", 1), 0)
        peer.is_known, peer.index = True, index
        register.peers[peer.key] = peer
    return register


def choose(register: Register) -> int:
    register.open(0)
    register.advance(0)
    return register.index


def index_of(node: Node) -> int:
    return node.core.register.index


def audience_of(topic: OutgoingTopic) -> tuple[int, int, bool]:
    return topic.audience.receiver, topic.audience.bitmap, topic.audience.flags == OPEN_BITMAP


def test_lowest_free_index_is_taken() -> None:
    assert choose(make_register(9)) == 0
    assert choose(make_register(9, k1=0, k2=1, k3=3)) == 2


def test_index_of_one_that_is_away_is_left_to_it() -> None:
    register = make_register(9, k1=0)
    next(iter(register.peers.values())).lost_ns = 1
    assert choose(register) == 1


def test_nodes_that_open_at_once_line_up_by_their_keys() -> None:
    numbers = [3, 5, 8, 11]
    chosen = [
        choose(make_register(n, k1=0, k2=2, **{f"k{m}": NO_INDEX for m in numbers if m != n}))
        for n in numbers
    ]
    assert chosen == [1, 3, 4, 5]


def test_smaller_key_keeps_an_index_that_two_have() -> None:
    for number, other, is_kept in [(3, 7, True), (7, 3, False)]:
        register = make_register(number)
        assert choose(register) == 0
        peer = Peer(key(other), ("10.0.0.1", 1), 0)
        peer.is_known, peer.index = True, 0
        register.peers[peer.key] = peer
        register.hear(10, peer)
        assert not register.advance(10)
        assert register.advance(10 + INDEX_PATIENCE) != is_kept
        assert register.index == (0 if is_kept else 1)


def test_thirty_nodes_that_meet_thirty_others_need_one_round() -> None:
    claims = {number: place % 30 for place, number in enumerate(range(1, 61))}
    chosen = []
    for number, index in claims.items():
        others = {f"k{other}": claimed for other, claimed in claims.items() if other != number}
        register = make_register(number, **others)
        register.index = index
        chosen.append(choose(register))
    assert sorted(chosen) == list(range(60))


def test_every_index_that_was_ours_is_honoured() -> None:
    register = make_register(7)
    choose(register)
    register.peers = make_register(7, k3=0).peers
    choose(register)
    assert register.index == 1
    shared = header.prefix(DATA, 0, 1, 0, key(3), 8, MANY, 0b01)
    frame = header.finish(shared, 1, 1, 1, b"")
    of_old = header.decode(frame)
    assert register.is_for_us(of_old)
    assert register.is_for_us(of_old._replace(bitmap=0b10))
    assert not register.is_for_us(of_old._replace(bitmap=0b100))
    assert register.is_for_us(of_old._replace(bitmap=0, receiver=1))
    assert register.is_for_us(of_old._replace(bitmap=0, flags=OPEN_BITMAP))
    assert not register.is_for_us(of_old._replace(bitmap=0, receiver=NOBODY))


@pytest.mark.parametrize("count", [11, 33, 66])
def test_last_of_so_many_nodes_gets_everything(count: int) -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    lan.run(60 * MS)
    nodes = [lan.add() for _ in range(count - 1)]
    nodes[-1].core.subscribe(lan.now, "/a")
    nodes[0].core.subscribe(lan.now, "/b")
    lan.run(2 * SECOND)
    assert sorted(map(index_of, lan.nodes)) == list(range(count))
    topic = publisher.core.publish_on(lan.now, "/a")
    other = publisher.core.publish_on(lan.now, "/b")
    index = index_of(nodes[-1])
    assert audience_of(topic) == ((MANY, 0, True) if index > 63 else (index, 1 << index, False))
    for number in range(5):
        lan.publish(publisher, topic, b"%d" % number)
        lan.publish(publisher, other, b"%d" % number)
        lan.run(30 * MS)
    expected = [b"%d" % number for number in range(5)]
    assert nodes[-1].payloads("/a") == nodes[0].payloads("/b") == expected


def test_receivers_come_and_go_in_the_bitmap() -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    lan.run(60 * MS)
    topic = publisher.core.publish_on(lan.now, "/a")
    assert audience_of(topic) == (NOBODY, 0, False)
    publisher.core.subscribe(lan.now, "/a")
    lan.run(10 * MS)
    assert audience_of(topic) == (NOBODY, 0, False), "one's own bit is never set"
    first, second = lan.open(2, "/a")
    lan.run(2 * SECOND)
    bits = 1 << index_of(first), 1 << index_of(second)
    assert audience_of(topic) == (MANY, sum(bits), False)
    second.core.unsubscribe(lan.now, "/a")
    lan.run(20 * MS)
    assert audience_of(topic) == (index_of(first), bits[0], False)
    first.core.close(lan.now, 1 * SECOND)
    lan.run(50 * MS)
    assert audience_of(topic) == (NOBODY, 0, False)


def test_receiver_that_has_not_said_its_index_makes_the_bitmap_open() -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    lan.run(60 * MS)
    topic = publisher.core.publish_on(lan.now, "/a")
    late = lan.add()
    late.core.subscribe(lan.now, "/a")
    lan.run(10 * MS)
    assert audience_of(topic) == (MANY, 0, True)
    lan.publish(publisher, topic, b"x")
    lan.run(50 * MS)
    assert late.payloads("/a") == [b"x"]
    assert audience_of(topic) == (1, 2, False)


def test_wildcard_sets_the_bit_of_every_matching_topic_also_of_later_ones() -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    lan.run(60 * MS)
    before = [publisher.core.publish_on(lan.now, f"/a/{n}") for n in range(3)]
    other = publisher.core.publish_on(lan.now, "/b/0")
    lan.open(1, "/a/*")
    after = [publisher.core.publish_on(lan.now, f"/a/{n}") for n in range(3, 6)]
    assert [audience_of(topic) for topic in before + after] == [(1, 2, False)] * 6
    assert audience_of(other) == (NOBODY, 0, False)


def test_frame_for_others_is_counted_but_not_looked_into_and_not_asked_for() -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    lan.run(60 * MS)
    (first,) = lan.open(1, "/a")
    (second,) = lan.open(1, "/b")
    a, b = (publisher.core.publish_on(lan.now, name) for name in ("/a", "/b"))
    for number in range(20):
        lan.publish(publisher, a, b"%d" % number)
        lan.publish(publisher, b, b"%d" % number)
        lan.run(30 * MS)
    expected = [b"%d" % number for number in range(20)]
    assert first.payloads("/a") == second.payloads("/b") == expected
    assert first.drops["not_for_us"] == second.drops["not_for_us"] == 20
    assert not lan.sent_of(NAK)
    receiver = first.core.peers[publisher.key].incoming[1]
    assert receiver.next == publisher.core.outgoing.reliable.next_sequence
    assert [topic.subject for topic in receiver.topics.values()] == ["/a"]
    state = publisher.core.outgoing.flow.receivers[first.key]
    assert state.contiguous == receiver.next, "STATUS counts what was for others"


def test_repair_names_those_who_are_owed_it() -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    lan.run(60 * MS)
    first, second = lan.open(2, "/a")
    topic = publisher.core.publish_on(lan.now, "/a")
    lan.lose = lambda datagram, node: (
        datagram.kind == DATA and node is second and not datagram.is_repair
    )
    lan.publish(publisher, topic, b"x")
    lan.run(100 * MS)
    assert second.payloads("/a") == [b"x"]
    (repair,) = (each for each in lan.sent_of(DATA) if each.is_repair)
    bits = 1 << index_of(first) | 1 << index_of(second)
    assert (repair.header.receiver, repair.header.bitmap) == (MANY, bits)
    assert not repair.header.flags & OPEN_BITMAP


def test_two_islands_that_took_the_same_indices_settle_it_and_miss_nothing() -> None:
    lan = Lan()
    nodes = [lan.add() for _ in range(8)]
    far = set(nodes[4:])
    lan.lose = lambda datagram, node: (datagram.sender in far) != (node in far)
    lan.run(1500 * MS)
    assert sorted(map(index_of, nodes)) == [0, 0, 1, 1, 2, 2, 3, 3]
    lan.lose = lambda *_: False
    for node in nodes[::2]:
        node.core.subscribe(lan.now, "/a")
    lan.run(30 * MS)
    topic = nodes[1].core.publish_on(lan.now, "/a")
    for number in range(100):
        lan.publish(nodes[1], topic, b"%d" % number)
        lan.run(30 * MS)
    assert sorted(map(index_of, nodes)) == list(range(8))
    for node in nodes[::2]:
        assert node.payloads("/a") == [b"%d" % number for number in range(100)]
        assert node.events_of(GapAbandoned) == []
    bits = sum(1 << index_of(node) for node in nodes[::2])
    assert audience_of(topic) == (MANY, bits, False)


def forge(lan: Lan, kind: int, body: bytes, sender: bytes) -> bytes:
    domain = lan.nodes[0].core.endpoint.domain
    shared = header.prefix(kind, OPEN_BITMAP, 0, domain, sender, 8)
    return header.finish(shared, 0, 1, 1, body) + body


@pytest.mark.parametrize("index", [-2, -(2**40), 2**15, 2**40, 2**63])
def test_forged_index_out_of_bounds_is_malformed(index: int) -> None:
    lan = Lan(1)
    (node,) = lan.nodes
    lan.run(60 * MS)
    hello = Hello("x", "host", 1, "default", 1, 0, 1, [], 1 << 20, [], True, index=index)
    node.core.receive(lan.now, forge(lan, HELLO, control.encode(hello), key(0)), 0, ("10.0.0.9", 9))
    assert node.drops["malformed"] == 1
    if index >= -(2**15):
        body = bytearray(control.encode_heartbeat(Heartbeat(1, 2000, [])))
        body[12:14] = (index & 0xFFFF).to_bytes(2, "big")
        frame = forge(lan, HEARTBEAT, bytes(body), key(0))
        node.core.receive(lan.now, frame, 0, ("10.0.0.9", 9))
        assert node.drops["malformed"] == (2 if index & 0x8000 else 1)


def test_node_that_claims_every_index_pushes_others_out_of_the_bitmap_and_nothing_is_lost() -> None:
    lan = Lan()
    publisher, subscriber = lan.add(1000), lan.add(1001)
    subscriber.core.subscribe(lan.now, "/a")
    lan.run(60 * MS)
    topic = publisher.core.publish_on(lan.now, "/a")
    sent = []
    for index in range(64):
        hello = Hello("x", "host", 1, "default", 1, 0, 1, [], 1 << 20, [], True, index=index)
        frame = forge(lan, HELLO, control.encode(hello), index.to_bytes(12, "big") + bytes(8))
        for node in (publisher, subscriber):
            node.core.receive(lan.now, frame, 0, ("10.0.0.9", 9))
        sent.append(b"%d" % index)
        lan.publish(publisher, topic, sent[-1])
        lan.run(25 * MS)
    lan.run(100 * MS)
    assert subscriber.payloads("/a") == sent
    assert subscriber.events_of(GapAbandoned) == []
    assert index_of(subscriber) > 63 and audience_of(topic) == (MANY, 0, True)


def test_introduction_and_heartbeat_tell_the_index() -> None:
    lan = Lan(2)
    lan.run(1500 * MS)
    for node in lan.nodes:
        beats = [
            control.decode_heartbeat(each.data[HEADER_BYTES:])
            for each in lan.sent_of(HEARTBEAT, node)
        ]
        assert beats[-1] is not None and beats[-1].node_index == index_of(node)
        hello = control.decode(Hello, lan.sent_of(HELLO, node)[0].data[HEADER_BYTES:])
        assert hello is not None and hello.index == NO_INDEX

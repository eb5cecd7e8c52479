"""One side of a gateway: what is passed on, under which sequence, and what is not."""

from hubbub.limits import (
    HOP_LIMIT,
    MS,
    PORT_BYTES_MAX,
    RELAYED_SUBJECT_BYTES_MAX,
    WISH_LINGER,
)
from hubbub.message import Source
from hubbub.protocol.delivery import MULTICAST, Delivery
from hubbub.protocol.gateway.port import Port
from hubbub.protocol.gateway.relayed import Place, RelayedTopic
from hubbub.protocol.topics import Hole, IncomingTopic, Way
from hubbub.wire.control import Topic
from tests.harness import Lan, Node

ORIGIN = Source("lidar-7", bytes(range(12)), 77)


class Beyond:
    """A LAN with a port of a gateway and one node that wants something."""

    def __init__(self, pattern: str = "/t/...") -> None:
        self.lan = Lan()
        gateway = self.lan.add()
        (self.node,) = self.lan.open(1, pattern)
        self.gateway: Node = gateway
        self.port = Port("beyond", gateway.core)
        assert self.port.look(self.lan.now)

    def topic(self, subject: str = "/t/x", *, hops: int = 0) -> IncomingTopic:
        topic = IncomingTopic(16, subject, ORIGIN, [], Way(), is_reliable=True, is_wanted=True)
        topic.hops = hops
        return topic

    def bring(self, topic: IncomingTopic, first: int, *payloads: bytes) -> None:
        times = [1000 + first + place for place in range(len(payloads))]
        delivery = Delivery(topic, first, list(payloads), times, 0, MULTICAST)
        self.port.put(delivery, topic.hops + 1, topic.subject)
        self.port.feed(self.lan.now)
        self.lan.run(50 * MS)

    @property
    def got(self) -> list[tuple[str, int, bytes, bytes]]:
        return [(one.subject, one.sequence, one.payload, one.sender) for one in self.node.received]


def test_messages_keep_origin_and_sequence() -> None:
    beyond = Beyond()
    beyond.bring(beyond.topic(), 57, b"a", b"b")
    assert beyond.got == [("/t/x", 57, b"a", ORIGIN.id), ("/t/x", 58, b"b", ORIGIN.id)]


def test_what_nobody_here_wants_is_not_queued() -> None:
    beyond = Beyond()
    beyond.bring(beyond.topic("/u/x"), 1, b"a")
    assert not beyond.port.is_waiting and not beyond.port.passed


def test_what_came_twice_goes_on_once() -> None:
    beyond = Beyond()
    beyond.bring(beyond.topic(), 1, b"a", b"b")
    beyond.bring(beyond.topic(), 2, b"b", b"c")
    beyond.bring(beyond.topic(), 1, b"a")
    assert [sequence for _, sequence, _, _ in beyond.got] == [1, 2, 3]
    assert beyond.port.drops == {"duplicate": 2}


def test_hole_stays_a_hole_of_the_origin() -> None:
    beyond = Beyond()
    topic = beyond.topic()
    beyond.bring(topic, 1, b"a")
    beyond.bring(topic, 5, b"e")
    assert [sequence for _, sequence, _, _ in beyond.got] == [1, 5]
    (gap,) = [event for event in beyond.node.events if "gap" in str(event)]
    assert "messages of /t/x 2..4 from lidar-7" in str(gap)


def test_hole_waits_until_what_is_before_it_has_its_sequence() -> None:
    beyond = Beyond()
    topic, now = beyond.topic(), beyond.lan.now
    for first, payload in ((1, b"a"), (9, b"i")):
        beyond.port.put(Delivery(topic, first, [payload], [1], 0, MULTICAST), 1, "/t/x")
    beyond.port.feed(now)
    assert beyond.port.is_waiting
    beyond.lan.run(10 * MS)
    beyond.port.feed(beyond.lan.now)
    beyond.lan.run(10 * MS)
    assert [sequence for _, sequence, _, _ in beyond.got] == [1, 9]


def test_hop_limit_and_long_subjects_end_the_way() -> None:
    beyond = Beyond("/...")
    beyond.bring(beyond.topic(hops=HOP_LIMIT - 1), 1, b"a")
    beyond.bring(beyond.topic(hops=HOP_LIMIT), 2, b"b")
    beyond.bring(beyond.topic("/" + "x" * RELAYED_SUBJECT_BYTES_MAX), 1, b"c")
    assert [payload for _, _, payload, _ in beyond.got] == [b"a"]
    assert beyond.port.drops == {"hops": 1, "subject": 1}


def test_queue_is_bounded_in_bytes() -> None:
    beyond = Beyond()
    half = bytes(PORT_BYTES_MAX // 2)
    for first in (1, 2, 3):
        beyond.port.put(Delivery(beyond.topic(), first, [half], [1], 0, MULTICAST), 1, "/t/x")
    assert beyond.port.queued_bytes == PORT_BYTES_MAX
    assert beyond.port.drops == {"overflow": 1}


def test_topic_ends_with_the_last_who_wants_it() -> None:
    beyond = Beyond()
    beyond.bring(beyond.topic(), 1, b"a")
    assert set(beyond.gateway.core.state.topics) == {"/t/x"}
    beyond.node.core.unsubscribe(beyond.lan.now, "/t/...")
    beyond.lan.run(50 * MS)
    assert beyond.port.look(beyond.lan.now)
    assert not beyond.port.passed
    assert not beyond.gateway.core.state.topics and not beyond.gateway.core.outgoing.topics


def test_who_comes_back_later_is_told_of_no_hole() -> None:
    beyond = Beyond()
    beyond.bring(beyond.topic(), 1, b"a")
    for wants in (beyond.node.core.unsubscribe, beyond.node.core.subscribe):
        wants(beyond.lan.now, "/t/...")
        beyond.lan.run(50 * MS)
        beyond.port.look(beyond.lan.now)
    beyond.bring(beyond.topic(), 500, b"z")
    assert [sequence for _, sequence, _, _ in beyond.got] == [1, 500]
    assert not [event for event in beyond.node.events if "gap" in str(event)]


def test_origin_that_is_here_is_not_heard_by_a_gateway() -> None:
    """In a circle of gateways a message would come to who sent it, and to its neighbours twice."""
    beyond = Beyond()
    neighbour = beyond.lan.open(1)[0].core.endpoint.source
    topic = IncomingTopic(16, "/t/x", neighbour, [], Way(), is_reliable=True, is_wanted=True)
    beyond.bring(topic, 1, b"a")
    assert beyond.got == []


def test_hole_that_two_gateways_leave_is_one() -> None:
    place, holes = Place(), list[Hole]()
    declared = Topic(16, 1, "/t/x", 1, "", 0, 0, bytes(20), "lidar-7", 1)
    first, second = (
        RelayedTopic(declared, place, holes, Way(), is_reliable=True, is_wanted=True)
        for _ in range(2)
    )
    first.start(171)
    first.start(559)
    second.start(667)
    first.close_hole()
    second.close_hole()
    assert [(hole.first, hole.last) for hole in holes] == [(171, 666)]


def test_wishes_of_a_gateway_that_is_ignored_linger() -> None:
    """It may be ignored because beacons were lost, and its wishes would be back in a moment."""
    beyond = Beyond()
    ignored, now = {beyond.node.key}, beyond.lan.now
    assert not beyond.port.look(now, ignored)
    assert not beyond.port.look(now + WISH_LINGER - 1, ignored)
    assert beyond.port.wants("/t/x")
    assert beyond.port.look(now + WISH_LINGER, ignored)
    assert not beyond.port.look(now + 2 * WISH_LINGER, ignored)
    assert not beyond.port.wants("/t/x")


def test_wishes_that_never_counted_do_not_linger() -> None:
    beyond = Beyond()
    beyond.node.core.subscribe(beyond.lan.now, "/u/...")
    beyond.lan.run(50 * MS)
    beyond.port.look(beyond.lan.now, {beyond.node.key})
    assert beyond.port.patterns == {"/t/..."}


def test_wishes_that_are_withdrawn_do_not_linger() -> None:
    beyond = Beyond()
    ignored = {beyond.node.key}
    assert not beyond.port.look(beyond.lan.now, ignored)
    beyond.node.core.unsubscribe(beyond.lan.now, "/t/...")
    beyond.lan.run(50 * MS)
    assert beyond.port.look(beyond.lan.now, ignored)
    assert not beyond.port.patterns

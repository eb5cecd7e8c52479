"""The gateway to RODOS over real datagrams: a capture is read by a decoder of its own."""

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import hubbub
from hubbub import ConfigurationError, LinkError
from hubbub.gateway import RodosGateway, RodosLink
from hubbub.wire.rodos import NetworkMessage, TopicList, encode, encode_list
from tests.integration.bus import Place, fresh_place, payloads, take, wait_until
from tests.unit.wire.test_rodos import read_field_by_field

ATTITUDE, POWER = 1001, 1002
TOPICS = {ATTITUDE: "/sat/attitude", POWER: "/sat/power"}
DEADLINE_S = 30.0


class Satellite:
    """A RODOS node: a socket, and what is put on the wire by it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(0.05)
        self.heard: list[dict[str, Any]] = []
        self.gateway = ("127.0.0.1", 0)

    def want(self, *topics: int) -> None:
        data = encode_list(TopicList(self.number, self.number % 32, topics))
        self.send(1, 1, data, bitmap=0xFFFF_FFFF)

    def send(self, topic: int, kind: int, data: bytes, *, bitmap: int = 0) -> None:
        message = NetworkMessage(-1, bitmap, 10, kind, self.number, time.time_ns(), 0, topic, data)
        self.socket.sendto(encode(message), self.gateway)

    def hear(self, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait for a datagram that is so; keep all."""
        end_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < end_s:
            try:
                self.heard.append(read_field_by_field(self.socket.recv(2000)))
            except TimeoutError:
                continue
            if is_it(self.heard[-1]):
                return self.heard[-1]
        raise AssertionError("it did not come")


@pytest.fixture
def satellite() -> Iterator[Satellite]:
    one = Satellite(4099)  # Index 3.
    yield one
    one.socket.close()


def join(node: hubbub.Node, satellite: Satellite, **options: Any) -> RodosGateway:
    return join_all(node, [satellite], **options)


def join_all(node: hubbub.Node, satellites: list[Satellite], **options: Any) -> RodosGateway:
    """Give each satellite a link of its own."""
    links = [RodosLink(("127.0.0.1", 0), [one.socket.getsockname()]) for one in satellites]
    for satellite, link in zip(satellites, links, strict=True):
        satellite.gateway = link.address
    return RodosGateway(node, TOPICS, links, number=4711, **options)


@pytest.fixture
def place() -> Place:
    return fresh_place()


def test_capture_decodes_field_by_field(place: Place, satellite: Satellite) -> None:
    with (
        place.open("rodos") as node,
        place.open("ground") as ground,
        join(node, satellite) as gateway,
    ):
        satellite.want(POWER)
        publisher = ground.publisher("/sat/power")
        assert publisher.wait_for_subscribers(1, timeout=DEADLINE_S)
        publisher.publish(b"28 V")
        heard = satellite.hear(lambda one: one["type"] == 0)
        assert heard["checksum"] == heard["computed"]
        assert (heard["receiverNode"], heard["receiverNodesBitMap"]) == (3, 1 << 3)
        assert (heard["maxStepsToForward"], heard["len"], heard["senderNode"]) == (10, 4, 4711)
        assert (heard["topicId"], heard["data"], heard["senderThreadId"]) == (POWER, b"28 V", 0)
        assert abs(heard["sentTime"] - time.time_ns()) < DEADLINE_S * 1e9
        lists = [one for one in satellite.heard if one["type"] == 1]
        assert lists and all(one["topicId"] == 1 and one["receiverNode"] == -1 for one in lists)
        assert gateway.statistics().nodes == {3: (POWER,)}


def test_messages_of_rodos_reach_who_subscribes_and_it_is_announced(
    place: Place, satellite: Satellite
) -> None:
    with place.open("rodos") as node, place.open("ground") as ground, join(node, satellite):
        subscription = ground.subscribe("/sat/*")
        satellite.hear(lambda one: one["type"] == 1 and one["data"][5] == 2)
        assert satellite.heard[-1]["data"][9:17] == bytes.fromhex("e9030000 ea030000")
        satellite.send(ATTITUDE, 0, b"1 2 3")
        satellite.send(77, 0, b"of a topic that nobody mapped")
        satellite.send(POWER, 0, b"27 V")
        messages = take(subscription, 2)
        assert payloads(messages) == [b"1 2 3", b"27 V"]
        assert [one.subject for one in messages] == ["/sat/attitude", "/sat/power"]
        subscription.close()
        satellite.hear(lambda one: one["type"] == 1 and one["data"][5] == 0)


def test_nothing_comes_back_that_came_from_there(place: Place, satellite: Satellite) -> None:
    with place.open("rodos") as node, join(node, satellite) as gateway:
        satellite.want(ATTITUDE)
        wait_until(lambda: gateway.statistics().nodes)
        satellite.send(ATTITUDE, 0, b"mine")
        wait_until(lambda: gateway.statistics().received)
        node.publish("/sat/power", b"unwanted")
        satellite.hear(lambda one: one["type"] == 1 and len(satellite.heard) > 1)
        assert all(one["type"] == 1 for one in satellite.heard)


@pytest.mark.parametrize("is_splitting", [False, True])
def test_long_message_is_refused_or_split(
    place: Place, satellite: Satellite, is_splitting: bool
) -> None:
    with (
        place.open("rodos") as node,
        place.open("ground") as ground,
        join(node, satellite, split=is_splitting) as gateway,
    ):
        satellite.want(POWER)
        publisher = ground.publisher("/sat/power")
        assert publisher.wait_for_subscribers(1, timeout=DEADLINE_S)
        publisher.publish(bytes(3000))
        publisher.publish(b"end")
        satellite.hear(lambda one: one["data"] == b"end")
        lengths = [one["len"] for one in satellite.heard if one["type"] == 0]
        assert lengths == ([1300, 1300, 400, 3] if is_splitting else [3])
        assert gateway.statistics().too_long == (not is_splitting)


def test_hostile_datagrams_change_nothing(place: Place, satellite: Satellite) -> None:
    with place.open("rodos") as node, join(node, satellite) as gateway:
        for length in range(80):
            satellite.socket.sendto(bytes([length]) * length, satellite.gateway)
        satellite.want(POWER)
        wait_until(lambda: gateway.statistics().nodes)
        drops = gateway.statistics().drops
        assert drops["short"] == 36 and sum(drops.values()) == 80


@pytest.mark.parametrize(
    ("topics", "fault"),
    [
        ({}, "1 to 59 topics, not 0"),
        ({1: "/a"}, "topic 1 must be"),
        ({-1: "/a"}, "topic -1 must be"),
        ({2: "/a", 3: "/a"}, "two topics have the same subject"),
        ({topic: f"/{topic}" for topic in range(2, 62)}, "not 60"),
    ],
)
def test_topics_that_cannot_be_are_refused(
    place: Place, topics: dict[int, str], fault: str
) -> None:
    with place.open("rodos") as node, pytest.raises(ConfigurationError, match=fault):
        RodosGateway(node, topics, [RodosLink(("127.0.0.1", 0))])


def test_gateway_that_cannot_begin_leaves_nothing_behind(place: Place) -> None:
    link = RodosLink(("127.0.0.1", 0))
    with place.open("rodos") as node:
        node.publisher("/b", reliable=False)
        with pytest.raises(ConfigurationError, match="/b"):
            RodosGateway(node, {1001: "/a", 1002: "/b"}, [link])
        assert [publisher.subject for publisher in node._publishers] == ["/b"]
    assert link.socket.fileno() == -1


def test_address_that_is_not_here_is_refused(place: Place) -> None:
    with place.open("rodos") as node, pytest.raises(LinkError, match="cannot listen for RODOS"):
        RodosGateway(node, TOPICS, [RodosLink(("203.0.113.1", 1))])


@pytest.mark.parametrize("router", ["simple", "intelligent"])
def test_messages_go_on_over_the_links_of_their_receivers_with_a_hop_less(
    place: Place, router: str
) -> None:
    satellites = [Satellite(number) for number in (4099, 4100, 4101)]
    one, two, three = satellites
    with place.open("rodos") as node, join_all(node, satellites, router=router) as gateway:
        for satellite in satellites:
            satellite.want(POWER)
        wait_until(lambda: len(gateway.statistics().nodes) == 3)
        one.send(POWER, 0, b"for two", bitmap=1 << 4)
        one.send(POWER, 0, b"for both", bitmap=1 << 4 | 1 << 5)
        passed = two.hear(lambda heard: heard["data"] == b"for two")
        assert (passed["senderNode"], passed["maxStepsToForward"]) == (4099, 9)
        assert passed["checksum"] == passed["computed"]
        three.hear(lambda heard: heard["data"] == b"for both")
        assert any(heard["data"] == b"for two" for heard in three.heard) == (router == "simple")
        assert not any(heard["data"].startswith(b"for") for heard in one.heard)
    for satellite in satellites:
        satellite.socket.close()

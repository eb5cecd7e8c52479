"""Best effort by datagrams that somebody names: to each receiver by itself, and never repaired."""

import time
from collections import Counter
from contextlib import ExitStack
from typing import Any

import pytest

import hubbub
from hubbub import ConfigurationError, Faults, NoCommonLink
from tests.integration.bus import Events, Place, acting, fresh_place, hear, say, take, wait_until
from tests.integration.namespace import ip, run_scenario
from tests.integration.test_bus_veth import HERE, add_host, is_able, leave

BOTH = {"links": ["multicast", "datagram"]}
MESSAGES = 500
LARGE = 200_000  # Bytes, in several frames of any size.


def read(place: list[Any], options: dict[str, Any], wish: list[str] | None) -> None:
    """Receive until the last message; tell how they came, and what was counted."""
    with Place(*place).open("reader", **options) as node:
        subscription = node.subscribe("/x", links=wish, queue=4 * MESSAGES)
        say("ready")
        links: Counter[str] = Counter()
        sequences, are_whole = [], True
        while (message := subscription.receive(30)) is not None and message.payload != b"end":
            sequences.append(message.sequence)
            links[message.link] += 1
            are_whole = are_whole and int(message.payload[:8]) == message.sequence
        assert message is not None
        [channel] = node.statistics().channels
        [topic] = [one for one in channel.topics if one.subject == "/x"]
        is_ordered = sequences == sorted(set(sequences))
        say([are_whole and is_ordered, len(sequences), topic.lost, dict(links), channel.naks_sent])
        hear()


def publish(publisher: hubbub.Publisher, count: int = MESSAGES, size_bytes: int = 8) -> None:
    for number in range(1, count + 1):
        publisher.publish((b"%08d" % number).ljust(size_bytes, b"."))


def await_link(publisher: hubbub.Publisher, link: str, count: int = 1) -> None:
    wait_until(lambda: [one.link for one in publisher.subscribers()] == count * [link])


def end(publisher: hubbub.Publisher, actor: Any) -> Any:
    """Say the last word often enough, for it may be lost as any other."""
    for _ in range(20):
        publisher.publish(b"end", flush=True)
    return actor.hear()


@pytest.mark.parametrize("size_bytes", [8, LARGE])
@pytest.mark.parametrize("readers", [1, 3])
def test_each_receiver_gets_datagrams_of_its_own(readers: int, size_bytes: int) -> None:
    place, count = fresh_place(), 5  # Large ones fit the buffer of a socket, however busy we are.
    links = ["local", "multicast", "datagram"]
    with place.open("p", links=links) as node, ExitStack() as stack:
        actors = [
            stack.enter_context(acting(read, place, {"links": links}, None)) for _ in range(readers)
        ]
        assert [actor.hear() for actor in actors] == readers * ["ready"]
        publisher = node.publisher("/x", reliable=False, links=["datagram"])
        await_link(publisher, "datagram", readers)
        before = node.statistics().channels[0].link.straight_out
        publish(publisher, count, size_bytes)
        publisher.publish(b"end")
        for actor in actors:
            assert actor.hear() == [True, count, 0, {"datagram": count}, 0]
        [channel] = node.statistics().channels
        assert channel.link.straight_out - before >= readers, "to each by itself"
        assert channel.repairs_sent == channel.naks_received == channel.cache_frames == 0


def test_what_is_lost_of_datagrams_is_counted_and_neither_asked_for_nor_repaired() -> None:
    place = fresh_place()
    with (
        place.open("p", faults=Faults(loss=0.2, seed=7, direction="out"), **BOTH) as node,
        acting(read, place, BOTH, None) as actor,
    ):
        assert actor.hear() == "ready"
        publisher = node.publisher("/x", reliable=False, links=["datagram"])
        await_link(publisher, "datagram")
        for number in range(1, MESSAGES + 1):
            publisher.publish(b"%08d" % number, flush=True)
            time.sleep(0.0005)  # A frame each, mostly: beside a busy I/O thread several share one.
        is_sound, received, lost, links, naks = end(publisher, actor)
        assert is_sound and links == {"datagram": received} and naks == 0
        assert lost > 0, "of the frames that the link lost on purpose"
        assert received + lost >= MESSAGES, "what was lost behind the last one is counted, too"
        [channel] = node.statistics().channels
        assert channel.repairs_sent == channel.naks_received == 0


def test_subscription_that_insists_gets_datagrams_beside_one_that_does_not() -> None:
    place = fresh_place()
    options = {"links": ["multicast", "datagram"]}
    with place.open("p", links=["multicast"]) as older, place.open("n", **options) as node:
        events = Events()
        node.on_event(events)
        with place.open("r", **options) as other:
            plain = other.subscribe("/x")
            insisting = other.subscribe("/x", links=["datagram"])
            publisher = node.publisher("/x", reliable=False)
            wait_until(lambda: publisher.receivers == 1)
            wait_until(lambda: len(publisher._topic.branches) == 1)
            reliable = older.publisher("/x")
            wait_until(lambda: reliable.receivers == 1)
            found = wait_until(lambda: _told(older, other))
            assert found, "a node that has no datagram cannot serve the one that insists"
            wait_until(lambda: [one.link for one in publisher.subscribers()] != ["none"])
            publisher.publish(b"1")
            assert take(plain, 1)[0].link in ("multicast", "datagram")
            assert take(insisting, 1)[0].link == "datagram"


def _told(*nodes: hubbub.Node) -> bool:
    return all(node.statistics().channels[0].unserved for node in nodes)


def test_reliable_publisher_and_a_subscription_to_datagram_alone_are_told_apart() -> None:
    place, events = fresh_place(), Events()
    with place.open("p", on_event=events, **BOTH) as node, place.open("r", **BOTH) as other:
        with pytest.raises(ConfigurationError, match=r"datagram repairs nothing.*reliable=False"):
            node.publisher("/x", links=["datagram"])
        other.subscribe("/x", links=["datagram"])
        node.publisher("/x")
        told = events.wait(NoCommonLink)
        assert told.is_hopeless and told.wanted == ("datagram",) and "datagram" in str(told)
        both = node.publisher("/y", links=["datagram", "multicast"])
        subscription = other.subscribe("/y")
        await_link(both, "multicast")
        both.publish(b"repaired")
        assert take(subscription, 1)[0].link == "multicast"


@pytest.mark.parametrize(
    ("there", "link"),
    [
        (["tcp", "datagram"], "datagram"),
        (["tcp", "multicast", "datagram"], "datagram"),
        (["tcp"], "tcp"),
    ],
)
def test_without_multicast_best_effort_goes_by_datagrams_where_both_have_them(
    there: list[str], link: str
) -> None:
    place = fresh_place()
    here = {"links": ["tcp", "datagram"], "multicast": False, "listen": place.port}
    options = {"links": there, "peers": ["127.0.0.1"], "listen": 0}
    with place.open("p", **here) as node, acting(read, place, options, None) as actor:
        assert actor.hear() == "ready"
        publisher = node.publisher("/x", reliable=False)
        assert publisher.links == ("datagram", "tcp")
        await_link(publisher, link)
        publish(publisher, 5, LARGE)
        publisher.publish(b"end")
        assert actor.hear() == [True, 5, 0, {link: 5}, 0]
        reliable = node.publisher("/reliable")
        assert reliable.links == (), "what must not be lost goes as ever"


def test_samples_go_by_datagrams_to_those_who_take_them() -> None:
    place = fresh_place()
    with place.open("maker", **BOTH) as node, place.open("user", **BOTH) as other:
        node.produce("/speed", lambda: b"13.9", links=["datagram"])
        samples = other.consume("/speed", period_ms=10)
        assert {one.link for one in take(samples, 5)} == {"datagram"}
        node.produce("/height", lambda: b"7", links=["multicast"])
        heights = other.consume("/height", period_ms=10)
        assert {one.link for one in take(heights, 5)} == {"multicast"}


def read_there(place: list[Any], options: dict[str, Any]) -> None:
    leave()
    read(place, options, None)


def by_cable(here: dict[str, Any], there: dict[str, Any]) -> None:
    """Publish best effort to the other end of a cable, by datagrams."""
    is_able()
    ip("link set lo up")
    place = fresh_place()
    with acting(read_there, place, there) as actor:
        assert actor.hear() == "elsewhere"
        add_host(actor)
        actor.tell()
        with place.open("here", interface="here", **here) as node:
            assert actor.hear() == "ready"
            publisher = node.publisher("/x", reliable=False, links=here.get("wish"))
            await_link(publisher, "datagram")
            publish(publisher, 5, LARGE)
            publisher.publish(b"end")
            assert actor.hear() == [True, 5, 0, {"datagram": 5}, 0]
            [channel] = node.statistics().channels
            assert channel.link.straight_out > 5 * LARGE / 1500, "in frames of an Ethernet"


def by_cable_of_a_group() -> None:
    links = {"links": ["datagram", "multicast"]}
    by_cable(links, {"interface": "there", **links})


def by_cable_without_a_group() -> None:
    links = {"links": ["tcp", "datagram"], "multicast": False}
    by_cable(links, {"interface": "there", "peers": [HERE], "listen": 0, **links})


@pytest.mark.netns
def test_datagrams_between_two_hosts_of_a_group() -> None:
    run_scenario(by_cable_of_a_group)


@pytest.mark.netns
def test_datagrams_between_two_hosts_that_are_connected() -> None:
    run_scenario(by_cable_without_a_group)

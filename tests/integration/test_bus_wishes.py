"""Publishers and subscriptions that insist on links: served over these, or told otherwise."""

import asyncio
from collections import Counter
from typing import Any

import pytest

import hubbub
from hubbub import ConfigurationError, GapAbandoned, NoCommonLink
from tests.integration.bus import (
    Events,
    Place,
    acting,
    fresh_place,
    hear,
    say,
    take,
    wait_until,
)
from tests.integration.test_bus_tcp import break_connections

ALL = ["inproc", "local", "tcp", "multicast"]
ELSEWHERE = {"links": ["local", "tcp", "multicast"], "peers": ["127.0.0.1"], "listen": 0}
MESSAGES = 3000


def read(
    place: list[Any], wishes: dict[str, list[str] | None], messages: int, history: bool = False
) -> None:
    """Receive all messages by several subscriptions at once; tell how they came."""
    events = Events()
    with Place(*place).open("reader", on_event=events, **ELSEWHERE) as node:
        subscriptions = {
            name: node.subscribe("/x/...", links=links, queue=4 * messages, history=history)
            for name, links in wishes.items()
        }
        say("ready")
        for name, subscription in subscriptions.items():
            numbers: dict[str, list[int]] = {}
            links: Counter[str] = Counter()
            for message in take(subscription, messages):
                numbers.setdefault(message.subject, []).append(int(bytes(message.payload[:8])))
                links[message.link] += 1
            are_whole = all(one == list(range(len(one))) for one in numbers.values())
            say([name, are_whole, links])
        say(len(events.of(GapAbandoned)))
        hear()


def publish(publishers: list[hubbub.Publisher], numbers: range, size_bytes: int = 8) -> None:
    for number in numbers:
        for publisher in publishers:
            publisher.publish((b"%08d" % number).ljust(size_bytes, b"."))


def are_connected(node: hubbub.Node) -> bool:
    """Tell whether both kinds of pipes lead to the other process."""
    [channel] = node.statistics().channels
    assert channel.local is not None and channel.tcp is not None
    return channel.local.pipes > 0 and channel.tcp.pipes > 0


def await_links(publisher: hubbub.Publisher, link: str) -> None:
    wait_until(lambda: [one.link for one in publisher.subscribers()] == [link])


def await_ways(node: hubbub.Node, count: int) -> None:
    """Wait until the other node is served in so many ways."""
    grants = node.channels[0].driver.core.outgoing.grants
    wait_until(lambda: [len(one.debt.owed) for one in grants._peers.values()] == [count])


@pytest.mark.parametrize("size_bytes", [8, 60_000])
def test_publishers_send_over_the_links_they_insist_on(size_bytes: int) -> None:
    place, messages = fresh_place(), 300
    wishes = {"/x/l": ["local"], "/x/t": ["tcp"], "/x/m": ["multicast"], "/x/tl": ["tcp", "local"]}
    with (
        place.open("p", links=ALL, listen=place.port) as node,
        acting(read, place, {"any": None}, len(wishes) * messages) as actor,
    ):
        assert actor.hear() == "ready"
        wait_until(lambda: are_connected(node))
        publishers = [node.publisher(subject, links=links) for subject, links in wishes.items()]
        for publisher, links in zip(publishers, wishes.values(), strict=True):
            await_links(publisher, links[0])
        publish(publishers, range(messages), size_bytes)
        expected = {"local": messages, "tcp": 2 * messages, "multicast": messages}
        assert actor.hear() == ["any", True, expected]
        assert actor.hear() == 0


def test_each_subscription_of_a_node_is_served_over_the_links_it_insists_on() -> None:
    place = fresh_place()
    wishes = {"any": None, "tcp": ["tcp"], "local": ["local", "tcp"], "multicast": ["multicast"]}
    with (
        place.open("p", links=ALL, listen=place.port) as node,
        acting(read, place, wishes, MESSAGES) as actor,
    ):
        assert actor.hear() == "ready"
        wait_until(lambda: are_connected(node))
        publisher = node.publisher("/x/y")
        await_ways(node, len(wishes))
        assert publisher.receivers == 1, "one node, in however many ways"
        publish([publisher], range(MESSAGES))
        assert actor.hear() == ["any", True, {"local": MESSAGES}]
        for link in ("tcp", "local", "multicast"):
            assert actor.hear() == [link, True, {link: MESSAGES}]
        assert actor.hear() == 0
        [channel] = node.statistics().channels
        assert channel.messages_sent == MESSAGES, "though they were framed for four streams"


@pytest.mark.parametrize("size_bytes", [8, 60_000])
def test_history_comes_over_the_links_that_a_subscription_insists_on(size_bytes: int) -> None:
    place, kept, messages = fresh_place(), 50, 80
    wishes = {"any": None, "tcp": ["tcp"], "local": ["local", "tcp"], "multicast": ["multicast"]}
    with place.open("p", links=ALL, listen=place.port) as node:
        publisher = node.publisher("/x/y", history=kept)
        publish([publisher], range(kept), size_bytes)
        with acting(read, place, wishes, messages, True) as actor:
            assert actor.hear() == "ready"
            wait_until(lambda: are_connected(node))
            await_ways(node, len(wishes))
            publish([publisher], range(kept, messages), size_bytes)
            told, are_whole, _ = actor.hear()
            assert (told, are_whole) == ("any", True), "by whatever link was there first"
            for link in ("tcp", "local", "multicast"):
                told, are_whole, links = actor.hear()
                assert (told, are_whole) == (link, True)
                assert links.keys() <= set(wishes[link] or ())
            assert actor.hear() == 0


def test_nodes_of_one_process_hand_over_history_only_where_it_may_be() -> None:
    place = fresh_place()
    options: dict[str, Any] = {"links": ["inproc", "local", "multicast"]}
    with place.open("p", **options) as node, place.open("s", **options) as other:
        publisher = node.publisher("/x", history=3)
        for number in range(5):
            publisher.publish(b"%d" % number)
        assert node.flush(5)
        for links in (["inproc"], ["multicast"], ["local"]):
            subscription = other.subscribe("/x", links=links, history=True)
            got = take(subscription, 3)
            assert [bytes(one.payload) for one in got] == [b"2", b"3", b"4"]
            if "inproc" not in links:
                assert {one.link for one in got} == set(links)


def test_broken_connection_falls_over_to_the_next_link_that_is_allowed() -> None:
    place = fresh_place()
    with (
        place.open("p", links=ALL, listen=place.port) as node,
        acting(read, place, {"any": None, "own": ["tcp", "multicast"]}, MESSAGES) as actor,
    ):
        assert actor.hear() == "ready"
        wait_until(lambda: are_connected(node))
        publisher = node.publisher("/x/y", links=["tcp", "multicast"])
        await_links(publisher, "tcp")
        await_ways(node, 2)
        for first in range(0, MESSAGES, 100):
            publish([publisher], range(first, first + 100))
            if first in (500, 1500):
                break_connections(node)
        for name in ("any", "own"):
            told, are_whole, links = actor.hear()
            assert (told, are_whole) == (name, True)
            assert links["tcp"] > 0 and links.keys() <= {"tcp", "multicast"}
        assert actor.hear() == 0, "nothing was given up"


def test_both_sides_are_told_that_no_link_is_common_and_nothing_is_sent() -> None:
    place, here, there = fresh_place(), Events(), Events()
    with (
        place.open("p", links=["local", "multicast"], on_event=here) as one,
        place.open("s", links=["local", "multicast"], on_event=there) as other,
    ):
        publisher = one.publisher("/x/y", links=["multicast"])
        subscription = other.subscribe("/x/...", links=["local"])
        at_publisher, at_subscriber = here.wait(NoCommonLink), there.wait(NoCommonLink)
        assert at_publisher.peer.name == "s" and not at_publisher.is_publisher
        assert at_subscriber.peer.name == "p" and at_subscriber.is_publisher
        assert "published over multicast and wanted over local" in str(at_publisher)
        assert at_publisher.is_hopeless and at_subscriber.is_hopeless
        assert publisher.publish(b"never sent") == 0
        assert publisher.subscribers() == () and not publisher.is_connected
        for node in (one, other):
            [channel] = node.statistics().channels
            assert channel.unserved == 1 and channel.counters["no_common_link"] == 1
        other.subscribe("/x/...", links=["local", "multicast"])
        assert publisher.wait_for_subscribers(1, 10)
        assert publisher.publish(b"sent") == 1
        assert subscription.receive(0.1) is None


def test_link_that_is_not_open_is_told_after_a_while() -> None:
    place, events = fresh_place(), Events()
    with (
        place.open("p", links=["tcp", "multicast"], listen=0) as one,
        place.open("s", links=["tcp", "multicast"], listen=0, on_event=events) as other,
    ):
        one.publisher("/x/y")
        other.subscribe("/x/...", links=["tcp"])
        told = events.wait(NoCommonLink)
        assert not told.is_hopeless and "no such link is open" in str(told)


def test_nodes_of_one_process_hand_over_only_what_may_be() -> None:
    place = fresh_place()
    with place.open("p", links=ALL) as one, place.open("s", links=ALL) as other:
        own = one.publisher("/x/i", links=["inproc"])
        multicast = one.publisher("/x/m", links=["multicast"])
        any_link = other.subscribe("/x/...")
        insisting = other.subscribe("/x/...", links=["inproc", "multicast"])
        wait_until(lambda: own.receivers == multicast.receivers == 1)
        own.publish(b"handed over")
        multicast.publish(b"framed")
        for subscription in (any_link, insisting):
            found = {message.subject: message.link for message in take(subscription, 2)}
            assert found == {"/x/i": "inproc", "/x/m": "multicast"}
        assert any_link.pending == insisting.pending == 0


def test_coroutines_read_what_came_over_the_links_they_insist_on() -> None:
    place = fresh_place()

    async def talk(one: hubbub.Node, other: hubbub.Node) -> list[str]:
        subscription = other.subscribe("/x/...", links=["multicast"])
        publisher = one.publisher("/x/y", links=["multicast", "local"])
        await asyncio.to_thread(publisher.wait_for_subscribers, 1, 10)
        for number in range(10):
            await publisher.publish_async(b"%d" % number)
        return [(await anext(subscription)).link for _ in range(10)]

    links = ["local", "multicast"]
    with place.open("p", links=links) as one, place.open("s", links=links) as other:
        assert asyncio.run(asyncio.wait_for(talk(one, other), 20)) == ["multicast"] * 10


def test_acknowledgements_come_from_those_who_insist_on_links() -> None:
    place = fresh_place()
    with (
        place.open("p", links=ALL, listen=place.port) as node,
        acting(read, place, {"any": ["tcp"]}, 20) as actor,
    ):
        assert actor.hear() == "ready"
        publisher = node.publisher("/x/y", acknowledge_ms=5000)
        await_links(publisher, "tcp")
        assert [publisher.publish(b"%08d" % number) for number in range(20)] == [1] * 20
        assert actor.hear() == ["any", True, {"tcp": 20}]


IMPOSSIBLE = [
    ([], "name at least one, or leave it out; this node has local, multicast"),
    (["pigeon"], "'pigeon' is none of inproc, local, tcp, multicast"),
    (["tcp"], "'tcp' is no link of this node; this node has local, multicast"),
    (["local", "local"], "'local' is there twice"),
    (7, "give a list of names"),
]


@pytest.mark.parametrize(("links", "why"), IMPOSSIBLE)
def test_impossible_links_are_an_error_that_says_why(links: Any, why: str) -> None:
    with fresh_place().open(links=["local", "multicast"]) as node:
        with pytest.raises(ConfigurationError, match=why):
            node.publisher("/x", links=links)
        with pytest.raises(ConfigurationError, match=why):
            node.subscribe("/x", links=links)


def test_combinations_that_cannot_work_are_an_error() -> None:
    with fresh_place().open(links=["inproc", "local", "multicast"]) as node:
        node.publisher("/x", links=["local"])
        with pytest.raises(ConfigurationError, match=r"already published here with .*'local'"):
            node.publisher("/x", links=["multicast"])
        with pytest.raises(ConfigurationError, match="already published here"):
            node.publisher("/x")
        with pytest.raises(ConfigurationError, match="name inproc first, or not at all"):
            node.publisher("/y", links=["local", "inproc"])

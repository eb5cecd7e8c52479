"""Nodes that nobody named: without multicast one address is enough to be connected to all."""

import signal
from contextlib import suppress
from typing import Any

import pytest

import hubbub
from hubbub import PeerJoined, introductions
from tests.integration.bus import (
    Events,
    Place,
    acting,
    fresh_place,
    hear,
    payloads,
    say,
    take,
    wait_until,
)
from tests.integration.namespace import ip, run_scenario
from tests.integration.test_bus_tcp import connections_of
from tests.integration.test_bus_veth import is_able, leave

# Nodes of one host that meet by the network alone, as those of several hosts do.
FINDING: dict[str, Any] = {"links": None, "multicast": False, "registration": "network"}


def address_of(node: hubbub.Node) -> str:
    [channel] = node.statistics().channels
    assert channel.tcp is not None
    return channel.tcp.address


def found_by(node: hubbub.Node) -> int:
    [channel] = node.statistics().channels
    assert channel.tcp is not None
    return channel.tcp.found


def peers_of(node: hubbub.Node) -> set[str]:
    return {peer.node.name for peer in node.peers()}


def lives_of(name: str, events: Events) -> int:
    return sum(one.peer.name == name for one in events.of(PeerJoined))


def subscribe(place: list[Any], known: str, options: dict[str, Any]) -> None:
    """Tell what comes on a subject, and by which link, knowing one address."""
    with Place(*place).open("reader", **options, listen=0, peers=[known]) as node:
        subscription = node.subscribe("/x")
        wait_until(lambda: "anchor" in peers_of(node))
        say("ready")
        while (message := subscription.receive(20)) is not None:
            say([message.payload.decode(), message.source.name, message.link])


def publish(place: list[Any], known: str) -> None:
    """Publish as soon as somebody wants it, and stay."""
    with Place(*place).open("press", **FINDING, listen=0, peers=[known]) as node:
        publisher = node.publisher("/x")
        wait_until(lambda: publisher.receivers)
        publisher.publish(b"1")
        wait_until(lambda: peers_of(node) == {"anchor", "reader"})
        say("published")
        hear()


def test_who_knows_one_address_hears_all() -> None:
    place = fresh_place()
    with place.open("anchor", **FINDING, listen=0) as anchor:
        known = address_of(anchor)
        with (
            acting(subscribe, place, known, FINDING) as reader,
            acting(publish, place, known) as press,
        ):
            assert reader.hear() == "ready"
            assert reader.hear() == ["1", "press", "tcp"]
            assert press.hear() == "published"
            press.tell()


def publish_at_once(place: list[Any], known: str) -> None:
    """Publish right after opening, again and again until told that it came."""
    for _ in range(20):  # On a busy machine others may take longer to say what they want.
        with Place(*place).open("press", **FINDING, listen=0, peers=[known]) as node:
            node.publish("/x", b"at once")
            say("published")
            if hear() == "enough":
                return


def test_what_is_published_at_once_reaches_who_was_found() -> None:
    place = fresh_place()
    with place.open("anchor", **FINDING, listen=0) as anchor:
        known = address_of(anchor)
        with (
            acting(subscribe, place, known, FINDING) as reader,
            acting(publish_at_once, place, known) as press,
        ):
            assert reader.hear() == "ready"
            for _ in range(20):
                assert press.hear() == "published"
                with suppress(AssertionError):
                    assert reader.hear(1)[:2] == ["at once", "press"]
                    press.tell("enough")
                    return
                press.tell("again")
            pytest.fail("none of twenty messages came")


def test_found_node_that_dies_and_comes_back_elsewhere_is_found_again() -> None:
    place, events = fresh_place(), Events()
    with (
        place.open("anchor", **FINDING, listen=0) as anchor,
        place.open("watcher", **FINDING, listen=0, peers=[address_of(anchor)], on_event=events)
        as watcher,
    ):  # fmt: skip
        for life in (1, 2):
            with acting(publish, place, address_of(anchor)) as press:
                wait_until(lambda life=life: lives_of("press", events) == life)
                wait_until(lambda: found_by(watcher) == 1)
                press.signal(signal.SIGKILL)
            wait_until(lambda: found_by(watcher) == 0)


def test_nodes_of_one_host_that_a_pipe_leads_to_are_not_called() -> None:
    place = fresh_place()
    options = {"links": None, "multicast": False}
    with place.open("anchor", **options, listen=0) as anchor:
        known = address_of(anchor)
        with acting(subscribe, place, known, options) as one, place.open(
            "press", **options, listen=0, peers=[known]
        ) as press:  # fmt: skip
            assert one.hear() == "ready"
            wait_until(lambda: found_by(press) == 1)
            publisher = press.publisher("/x")
            assert publisher.wait_for_subscribers(1, 10)
            publisher.publish(b"1")
            assert one.hear() == ["1", "press", "local"]
            assert connections_of(press) <= 1, "to the one that was named, at the most"


def test_who_names_its_links_is_connected_to_named_peers_alone() -> None:
    place = fresh_place()
    options = {"links": ["tcp"]}
    with place.open("anchor", **options, listen=0) as anchor:
        known = address_of(anchor)
        with acting(subscribe, place, known, options) as reader, place.open(
            "press", **options, listen=0, peers=[known]
        ) as press:  # fmt: skip
            assert reader.hear() == "ready"
            wait_until(lambda: peers_of(press) == {"anchor"})
            assert not press.is_sharing_services and found_by(press) == 0
            assert not press.publisher("/x").wait_for_subscribers(1, 0.5)


def test_more_nodes_than_are_connected_to_are_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(introductions, "FOUND_PEERS_MAX", 1)
    place = fresh_place()
    with place.open("anchor", **FINDING, listen=0) as anchor:
        known = address_of(anchor)
        with (
            acting(subscribe, place, known, FINDING) as one,
            acting(subscribe, place, known, FINDING) as other,
        ):
            assert one.hear() == other.hear() == "ready"
            with caplog.at_level("WARNING", "hubbub"):
                wait_until(lambda: sum(1 for _ in anchor.services.ring()) == 3)
                wait_until(lambda: "2 nodes share this bus, of which 1" in caplog.text)
            assert found_by(anchor) == 1


def test_name_that_has_no_address_yet_holds_nobody_up() -> None:
    place = fresh_place()
    with (
        place.open("anchor", **FINDING) as anchor,
        place.open("late", **FINDING, listen=0, peers=["nobody.invalid", "localhost"]) as late,
    ):
        assert late.services.wait_for_members(1, 10)
        subscription = late.subscribe("/x")
        publisher = anchor.publisher("/x")
        assert publisher.wait_for_subscribers(1, 10)
        publisher.publish(b"1")
        assert payloads(take(subscription, 1)) == [b"1"]


# Three hosts at a switch that lets no multicast through, each with a process.

ANCHOR, READER, PRESS = (f"10.72.66.{number}" for number in (1, 2, 3))


def act_on_host(place: list[Any], host: str, role: str) -> None:
    """Read, or publish, on a host of our own that knows the anchor's address alone."""
    leave(host)
    with Place(*place).open(role, **FINDING, interface="there", peers=[ANCHOR]) as node:
        if role == "reader":
            subscription = node.subscribe("/plant/*/temp")
            say("ready")
            say([(one.payload.decode(), one.source.name) for one in take(subscription, 3)])
        else:
            publisher = node.publisher("/plant/line1/temp", history=3)
            assert publisher.wait_for_subscribers(1, 20)
            for number in range(3):
                publisher.publish(b"%d" % number)
            wait_until(lambda: peers_of(node) == {"anchor", "reader"})
            say("published")
        hear()


def three_hosts() -> None:
    is_able()
    place = fresh_place()
    ip("link set lo up")
    ip("link add switch type bridge mcast_snooping 0")
    ip("link set switch up")
    ip(f"address add {ANCHOR}/24 dev switch")
    with (
        place.open("anchor", **FINDING, interface="switch"),
        acting(act_on_host, place, READER, "reader") as reader,
        acting(act_on_host, place, PRESS, "press") as press,
    ):
        for number, actor in enumerate((reader, press)):
            assert actor.hear() == "elsewhere"
            ip(f"link add port{number} type veth peer name there netns {actor.pid}")
            ip(f"link set port{number} master switch up")
            actor.tell()
        assert reader.hear() == "ready"
        assert reader.hear() == [[str(number), "press"] for number in range(3)]
        assert press.hear() == "published"
        reader.tell()
        press.tell()


@pytest.mark.netns
def test_three_hosts_that_know_one_of_them_are_one_bus() -> None:
    run_scenario(three_hosts)

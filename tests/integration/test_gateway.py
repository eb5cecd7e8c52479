"""Gateways between real sockets: LANs of one host, sites by TCP, and what is left of a break."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hubbub
from hubbub import ConfigurationError, GapAbandoned, PeerRefused, TcpOptions
from hubbub.gateway import Gateway, GatewayStatistics, Side
from hubbub.gateway.routes import ROUTES_PATTERN
from tests.certificates import Authority
from tests.integration.bus import (
    Actor,
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
from tests.integration.link_probe import free_port

COUNT = 2000


def side(place: Place, name: str) -> Side:
    return Side(name, place.domain, "127.0.0.1", place.group, place.port)


@contextmanager
def joined(*places: Place, name: str = "gw") -> Iterator[Gateway]:
    sides = [side(place, f"lan-{number}") for number, place in enumerate(places)]
    with Gateway.open(sides, name=name) as gateway:
        yield gateway


def publisher_beyond(node: hubbub.Node, subject: str, receivers: int = 1) -> hubbub.Publisher:
    publisher = node.publisher(subject)
    assert publisher.wait_for_subscribers(receivers, timeout=30)
    return publisher


@pytest.mark.parametrize("links", [["multicast"], ["local", "multicast"]])
def test_messages_cross_with_origin_sequence_and_order(links: list[str]) -> None:
    left, right = fresh_place(), fresh_place()
    with (
        joined(left, right) as gateway,
        left.open("talker", links=links) as talker,
        right.open("listener", links=links) as listener,
    ):
        subscription = listener.subscribe("/t/*", queue=COUNT)
        publisher = publisher_beyond(talker, "/t/x")
        for number in range(COUNT):
            publisher.publish(b"%d" % number)
        messages = take(subscription, COUNT)
        assert payloads(messages) == [b"%d" % number for number in range(COUNT)]
        assert {message.source for message in messages} == {
            hubbub.Source("talker", talker.id, talker.identity.incarnation)
        }
        assert [message.sequence for message in messages] == list(range(1, COUNT + 1))
        _, port = gateway.statistics().ports
        assert port.messages == COUNT
        assert [(topic.origin.name, topic.hops) for topic in port.topics] == [("talker", 1)]


def test_both_ways_and_large_messages() -> None:
    left, right = fresh_place(), fresh_place()
    large = bytes(range(256)) * 4096
    with (
        joined(left, right),
        left.open("one", links=["local", "multicast"]) as one,
        right.open("other", links=["local", "multicast"]) as other,
    ):
        heard = [one.subscribe("/from/other"), other.subscribe("/from/one")]
        publishers = [publisher_beyond(other, "/from/other"), publisher_beyond(one, "/from/one")]
        for publisher in publishers:
            publisher.publish(b"small")
            publisher.publish(large)
        for subscription in heard:
            assert list(map(bytes, payloads(take(subscription, 2)))) == [b"small", large]


def test_interest_is_withdrawn_with_the_last_subscriber() -> None:
    left, right = fresh_place(), fresh_place()
    with joined(left, right), left.open("talker") as talker, right.open("listener") as listener:
        first, second = listener.subscribe("/t/x"), listener.subscribe("/t/x")
        publisher = publisher_beyond(talker, "/t/x")
        first.close()
        assert publisher.publish(b"still wanted") == 1
        assert payloads(take(second, 1)) == [b"still wanted"]
        second.close()
        wait_until(lambda: publisher.receivers == 0)
        assert publisher.publish(b"to nobody") == 0


def test_two_gateways_in_a_row() -> None:
    places = [fresh_place() for _ in range(3)]
    with (
        joined(places[0], places[1], name="gw-1"),
        joined(places[1], places[2], name="gw-2") as second,
        places[0].open("talker") as talker,
        places[2].open("listener") as listener,
    ):
        subscription = listener.subscribe("/t/...")
        publisher = publisher_beyond(talker, "/t/x")
        for number in range(100):
            publisher.publish(b"%d" % number)
        messages = take(subscription, 100)
        assert payloads(messages) == [b"%d" % number for number in range(100)]
        assert {message.source.name for message in messages} == {"talker"}
        (topic,) = second.statistics().ports[1].topics
        assert (topic.origin.name, topic.hops, topic.receivers) == ("talker", 2, 1)


def with_tls(site: Side, options: TcpOptions) -> Side:
    names = ("ca", "certificate", "key")
    return replace(site, compress="zlib", **{name: getattr(options, name) for name in names})


def test_sites_are_joined_by_tls_packed_and_again_after_a_break(tmp_path: Path) -> None:
    left, right = fresh_place(), fresh_place()
    address = f"127.0.0.1:{free_port()}"
    options = Authority(tmp_path).options("plant-a")
    listening = Side("wan", listen=address, allow=("plant-a",))
    calling = Side("wan", interface="127.0.0.1", peers=(address,))
    there = [side(right, "right"), with_tls(listening, options)]
    here = [side(left, "left"), with_tls(calling, options)]
    with (
        Gateway.open(here, name="gw-left"),
        left.open("talker") as talker,
        right.open("listener") as listener,
    ):
        events = Events()
        listener.on_event(events)
        subscription = listener.subscribe("/t/x")
        publisher = talker.publisher("/t/x")
        with Gateway.open(there, name="gw-right"):
            # While a gateway listens, what is published may be passed on, or not yet.
            wait_until(lambda: publisher.publish(b"before") and subscription.received)
        wait_until(lambda: publisher.receivers == 0)
        publisher.publish(b"meanwhile")
        heard = take(subscription, subscription.pending)
        assert {one.payload for one in heard} == {b"before"}
        with Gateway.open(there, name="gw-right"):
            wait_until(lambda: publisher.publish(b"after") and subscription.pending)
            [first, *_] = take(subscription, 1)
            assert first.payload == b"after"
            gap = events.wait(GapAbandoned)
            assert (gap.publisher.name, gap.first) == ("talker", heard[-1].sequence + 1)
            assert gap.last == first.sequence - 1


def test_who_may_not_connect_is_an_event_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    address = f"127.0.0.1:{free_port()}"
    events, allow = Events(), TcpOptions(allow=("10.0.0.0/8",))
    options: dict[str, Any] = {"links": ["tcp"], "multicast": False, "interface": "127.0.0.1"}
    with (
        hubbub.open("strict", listen=address, tcp=allow, on_event=events, **options) as strict,
        hubbub.open("stranger", listen=0, peers=[address], **options),
    ):
        event = events.wait(PeerRefused)
        assert event.address.startswith("127.0.0.1:")
        assert event.reason == "its address is not allowed"
        tcp = strict.statistics().channels[0].tcp
        assert tcp is not None and tcp.refused >= 1
    assert "peer refused: 127.0.0.1:" in caplog.text


def test_node_that_would_hear_itself_is_refused() -> None:
    place = fresh_place()
    with place.open("one") as one, fresh_place().open("other") as other:
        with pytest.raises(ConfigurationError, match="loopback=False"):
            Gateway([one, other])
        with pytest.raises(ConfigurationError, match="at least 2 networks, not 1"):
            Gateway([one])


def test_ring_of_three_brings_each_message_once() -> None:
    places = [fresh_place() for _ in range(3)]
    with (
        joined(places[0], places[1], name="gw-1") as first,
        joined(places[1], places[2], name="gw-2") as second,
        joined(places[2], places[0], name="gw-3") as third,
        places[0].open("talker") as talker,
        places[0].open("near") as near,
        places[1].open("one") as one,
        places[2].open("other") as other,
    ):
        subscriptions = [node.subscribe("/t/x") for node in (near, one, other)]
        publisher = talker.publisher("/t/x")
        wait_until(lambda: sum(g.statistics().is_standby for g in (first, second, third)) == 1)

        def is_heard_everywhere() -> bool:
            publisher.publish(b"probe")
            return all(subscription.pending for subscription in subscriptions)

        wait_until(is_heard_everywhere)
        for number in range(300):
            publisher.publish(b"%d" % number)
        assert talker.flush(timeout=30)
        end = publisher.sequence
        for subscription in subscriptions:
            begin = take(subscription, 1)[0].sequence
            rest = take(subscription, end - begin)
            assert [message.sequence for message in rest] == list(range(begin + 1, end + 1))
            assert payloads(rest[-300:]) == [b"%d" % number for number in range(300)]
            assert subscription.pending == 0


def stand(left: list[Any], right: list[Any], node_id: str) -> None:
    """Be a gateway between two places until told to stop."""
    sides = [side(Place(*left), "left"), side(Place(*right), "right")]
    with Gateway.open(sides, name="gw", node_id=node_id) as gateway:
        say("ready")
        while hear() != "stop":
            say([gateway.statistics().is_standby])


def is_standing_by(actor: Actor) -> bool:
    actor.tell("how is it?")
    (is_standby,) = actor.hear()
    return bool(is_standby)


def test_gateway_that_stands_by_takes_over_from_one_that_is_killed() -> None:
    left, right = fresh_place(), fresh_place()
    with (
        acting(stand, list(left), list(right), "00" * 12) as first,
        acting(stand, list(left), list(right), "ff" * 12) as second,
        left.open("talker") as talker,
        right.open("listener") as listener,
    ):
        assert first.hear() == second.hear() == "ready"
        events = Events()
        listener.on_event(events)
        subscription = listener.subscribe("/t/x", queue=100_000)
        publisher = publisher_beyond(talker, "/t/x", 2)
        wait_until(lambda: is_standing_by(second) and not is_standing_by(first))
        count, killed_at = 0, 0
        while not killed_at or count < killed_at + 20 or is_standing_by(second):
            publisher.publish(b"%d" % count)
            count += 1
            time.sleep(0.005)
            if count == 50:
                first.process.kill()
                killed_at = count
        assert payloads(take(subscription, count)) == [b"%d" % number for number in range(count)]
        assert subscription.pending == 0 and not events.of(GapAbandoned)


def test_routes_are_told_across_gateways_to_who_subscribes() -> None:
    places = [fresh_place() for _ in range(3)]
    with (
        joined(places[0], places[1], name="gw-1"),
        joined(places[1], places[2], name="gw-2"),
        places[0].open("talker") as talker,
        places[2].open("listener") as listener,
    ):
        subscription = listener.subscribe("/t/x")
        publisher_beyond(talker, "/t/x").publish(b"1")
        assert payloads(take(subscription, 1)) == [b"1"]
        told: dict[str, GatewayStatistics] = {}
        with listener.subscribe(ROUTES_PATTERN, type=GatewayStatistics) as routes:

            def are_all_told() -> bool:
                message = routes.receive(timeout=0.1)
                if message is not None:
                    told[message.payload.name] = message.payload
                return told.keys() == {"gw-1", "gw-2"} and _hops(told["gw-2"]) == ["talker 2"]

            wait_until(are_all_told)
        assert _hops(told["gw-1"]) == ["talker 1"]


def _hops(told: GatewayStatistics) -> list[str]:
    """Say of the topic that is passed on to the last side whose it is, and how far it came."""
    last = told.ports[-1]
    return [f"{one.origin.name} {one.hops}" for one in last.topics if one.subject == "/t/x"]


def test_subjects_have_other_names_beyond_both_ways() -> None:
    left, right = fresh_place(), fresh_place()
    plant = replace(
        side(right, "plant"), remap={"/plant": "/site1/plant"}, only=("/plant/...", "/set/*"),
        rate_limit_bits=50_000_000, urgent=("/set/...",),
    )  # fmt: skip
    with (
        Gateway.open([side(left, "office"), plant], name="gw") as gateway,
        left.open("desk") as desk,
        right.open("machine") as machine,
    ):
        assert gateway.nodes[1].settings.rate_limit_bits == 50_000_000
        heard = [desk.subscribe("/site1/..."), machine.subscribe(["/plant/set", "/set/x"])]
        publisher = publisher_beyond(machine, "/plant/temp")
        others = [publisher_beyond(desk, subject) for subject in ("/site1/plant/set", "/set/x")]
        assert gateway.statistics().ports[1].asked == ("/plant/...",)
        publisher.publish(b"21.5")
        (message,) = take(heard[0], 1)
        assert (message.subject, message.source.name) == ("/site1/plant/temp", "machine")
        for other in others:
            other.publish(b"20")
        assert {one.subject for one in take(heard[1], 2)} == {"/plant/set", "/set/x"}


def test_only_subjects_of_the_filter_cross_either_way() -> None:
    left, right = fresh_place(), fresh_place()
    sides = [side(left, "left"), replace(side(right, "right"), only=("/plant/...",))]
    with (
        Gateway.open(sides, name="gw") as gateway,
        left.open("talker") as talker,
        right.open("listener") as listener,
    ):
        subscription = listener.subscribe(["/plant/x", "/*/y", "/private/..."])
        private = talker.publisher("/private/y")
        publishers = [publisher_beyond(talker, subject) for subject in ("/plant/y", "/plant/x")]
        assert gateway.statistics().ports[0].asked == ("/*/y", "/plant/x")
        private.publish(b"secret")
        for publisher in publishers:
            publisher.publish(b"public")
        messages = take(subscription, 2)
        assert [message.subject for message in messages] == ["/plant/y", "/plant/x"]
        assert subscription.pending == 0

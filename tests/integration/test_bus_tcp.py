"""Nodes that are named to each other: TCP without multicast and beside it, broken and mended."""

import os
import re
import signal
import socket
import struct
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import hubbub
from hubbub import PeerJoined, PeerLeft, SlowConsumer
from hubbub.limits import PIPE_FRAME_BYTES
from tests.integration.bus import (
    Events,
    Place,
    acting,
    descriptors,
    fresh_place,
    hear,
    payloads,
    say,
    take,
    wait_until,
)
from tests.integration.namespace import ip, run_scenario
from tests.integration.test_bus_veth import HERE, THERE, add_host, is_able, leave

ALONE = {"links": ["tcp"]}
BESIDE = {"links": ["tcp", "multicast"]}
LOOPBACK = ["127.0.0.1"]


def count(place: list[Any], messages: int, options: dict[str, Any]) -> None:
    """Receive so many messages; tell whether all came in order, and by which links."""
    with Place(*place).open("counter", **options) as node:
        subscription = node.subscribe("/x", queue=messages)
        say("ready")
        links: Counter[str] = Counter()
        is_complete = True
        for number, message in zip(range(messages), subscription, strict=False):
            is_complete = is_complete and int(message.payload[:8]) == number
            links[message.link] += 1
        say([is_complete, subscription.pending, dict(links)])
        hear()


def publish_all(publisher: hubbub.Publisher, numbers: range, size_bytes: int = 8) -> None:
    for number in numbers:
        publisher.publish((b"%08d" % number).ljust(size_bytes, b"."))


def connections_of(node: hubbub.Node) -> int:
    [channel] = node.statistics().channels
    assert channel.tcp is not None
    return channel.tcp.pipes


def break_connections(node: hubbub.Node) -> None:
    [connection] = node.channels
    assert connection.driver.tcp is not None
    for pipe in list(connection.driver.tcp.link._pipes.values()):
        with suppress(OSError):  # It may be broken already, and not crossed out yet.
            pipe.socket.shutdown(socket.SHUT_RDWR)


# Without multicast.


def test_two_processes_that_are_named_talk_without_multicast() -> None:
    place, messages = fresh_place(), 20_000
    with place.open("p", **ALONE) as node:
        [channel] = node.statistics().channels
        assert channel.tcp is not None
        assert channel.tcp.address == f"127.0.0.1:{place.port}", "where others expect it"
        with acting(count, place, messages, {**ALONE, "peers": LOOPBACK}) as actor:
            assert actor.hear() == "ready"
            publisher = node.publisher("/x")
            assert publisher.wait_for_subscribers(1, 10)
            publish_all(publisher, range(messages))
            assert actor.hear() == [True, 0, {"tcp": messages}]
            [subscriber] = publisher.subscribers()
            assert (subscriber.link, subscriber.node.name) == ("tcp", "counter")
            [peer] = node.statistics().channels[0].peers
            assert peer.link == "tcp" and re.fullmatch(r"127\.0\.0\.1:\d+", peer.address)
            actor.tell()


def test_who_is_named_by_either_side_is_found_whoever_comes_first() -> None:
    place, events = fresh_place(), Events()
    with place.open("first", **ALONE, peers=LOOPBACK, on_event=events) as first:
        second_port = first.statistics().channels[0].tcp.address  # type: ignore[union-attr]
        with place.open("second", **ALONE, peers=[second_port]) as second:
            wait_until(lambda: connections_of(first) == connections_of(second) == 1)
            assert events.wait(PeerJoined).peer.name == "second"
        assert events.wait(PeerLeft).reason == "closed"


def udp_sockets() -> set[str]:
    """Name the UDP sockets of this process, of both families."""
    tables = [Path(f"/proc/net/{name}").read_text() for name in ("udp", "udp6")]
    known = {line.split()[9] for table in tables for line in table.splitlines()[1:]}
    own = {what.partition("[")[2].rstrip("]") for _, what in descriptors() if "socket" in what}
    return known & own


def test_node_that_names_its_links_has_no_udp_socket() -> None:
    place, before = fresh_place(), udp_sockets()
    with place.open("n", links=["inproc", "local", "tcp"], peers=LOOPBACK) as node:
        subscription = node.subscribe("/x")
        assert node.publish("/x", b"1") == 1
        assert take(subscription, 1)[0].link == "loopback"
        assert udp_sockets() <= before
    with place.open("n"):
        assert udp_sockets() - before, "or nothing would have been seen"


@pytest.mark.parametrize("size_bytes", [1 << 20, 10 << 20])
def test_large_messages_are_cut_into_large_frames(size_bytes: int) -> None:
    place, messages = fresh_place(), max(3, (40 << 20) // size_bytes)
    options = {**ALONE, "peers": LOOPBACK}
    with place.open("p", **ALONE) as node, acting(count, place, messages, options) as actor:
        assert actor.hear() == "ready"
        publisher = node.publisher("/x")
        assert publisher.wait_for_subscribers(1, 10)
        publish_all(publisher, range(messages), size_bytes)
        assert actor.hear() == [True, 0, {"tcp": messages}]
        [channel] = node.statistics().channels
        frames = messages * size_bytes / (PIPE_FRAME_BYTES - 200)
        assert channel.frames_sent - channel.repairs_sent < 1.1 * frames + 10
        actor.tell()


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")
def test_peers_have_addresses_of_ipv6() -> None:
    place = fresh_place()
    with place.open("six", **ALONE, interface="::1") as node:
        named = f"[::1]:{place.port}"
        assert node.statistics().channels[0].tcp.address == named  # type: ignore[union-attr]
        for peer in ("::1", named):
            with place.open("caller", **ALONE, peers=[peer], listen=0) as other:
                wait_until(lambda one=other: connections_of(one) == 1)


def test_peers_have_names() -> None:
    place = fresh_place()
    with place.open("named", **ALONE), place.open("caller", **ALONE, peers="localhost") as other:
        wait_until(lambda: connections_of(other) == 1)


def test_open_publish_close_reaches_a_running_subscriber() -> None:
    place, tries = fresh_place(), 10
    with place.open("s", **ALONE) as node:
        subscription = node.subscribe("/x")
        for number in range(tries):
            with place.open("once", **ALONE, peers=LOOPBACK) as other:
                other.publish("/x", b"%d" % number)
        assert sorted(payloads(take(subscription, tries))) == sorted(
            b"%d" % number for number in range(tries)
        )


def listen_and_publish(place: list[Any], node_id: str) -> None:
    """Publish numbers until killed, each life beginning anew."""
    with Place(*place).open("listener", **ALONE, node_id=node_id) as node:
        publisher = node.publisher("/x")
        assert publisher.wait_for_subscribers(1, 20)
        say("ready")
        for number in range(1_000_000):
            publisher.publish(b"%d" % number)
            time.sleep(0.0005)


def test_listener_that_is_killed_and_comes_back_is_connected_again() -> None:
    place, events = fresh_place(), Events()
    options: dict[str, Any] = {"on_event": events, "peers": LOOPBACK, "listen": 0}
    with place.open("caller", **ALONE, **options) as node:
        subscription = node.subscribe("/x", queue=100_000)
        for life in range(1, 4):
            enough = subscription.pending + 100
            with acting(listen_and_publish, place, "0b" * 12) as actor:
                assert actor.hear() == "ready"
                wait_until(lambda wanted=enough: subscription.pending > wanted)
                actor.signal(signal.SIGKILL)
            wait_until(lambda: connections_of(node) == 0)
            assert len(events.of(PeerJoined)) == life
        messages = take(subscription, subscription.pending)
    numbers = Counter((message.source.incarnation, int(message.payload)) for message in messages)
    assert max(numbers.values()) == 1, "nothing twice"
    assert len({incarnation for incarnation, _ in numbers}) == 3
    for incarnation in {incarnation for incarnation, _ in numbers}:
        of_life = [number for one, number in numbers if one == incarnation]
        assert of_life == list(range(len(of_life))), "in order and complete"


def test_every_message_of_a_life_comes_once_though_its_connection_breaks() -> None:
    place, messages = fresh_place(), 15_000
    options = {**ALONE, "peers": LOOPBACK}
    with place.open("p", **ALONE) as node, acting(count, place, messages, options) as actor:
        assert actor.hear() == "ready"
        publisher = node.publisher("/x")
        assert publisher.wait_for_subscribers(1, 10)
        for part in range(3):
            publish_all(publisher, range(part * 5_000, (part + 1) * 5_000))
            break_connections(node)
            wait_until(lambda: connections_of(node) == 1)
        assert actor.hear() == [True, 0, {"tcp": messages}]
        actor.tell()


def receive_slowly(place: list[Any]) -> None:
    """Be there, and then not be given any time."""
    with Place(*place).open("stopped", **ALONE, peers=LOOPBACK) as node:
        node.subscribe("/x", queue=100)
        say("ready")
        hear()


def test_reader_that_stops_does_not_stop_another() -> None:
    place, messages, events = fresh_place(), 60, Events()
    near = {**ALONE, "peers": LOOPBACK}
    with (
        place.open("p", **ALONE, on_event=events) as node,
        acting(receive_slowly, place) as stopped,
        acting(count, place, messages, near) as actor,
    ):
        assert stopped.hear() == actor.hear() == "ready"
        publisher = node.publisher("/x")
        assert publisher.wait_for_subscribers(2, 10)
        stopped.signal(signal.SIGSTOP)
        publish_all(publisher, range(messages), 1 << 20)
        assert actor.hear() == [True, 0, {"tcp": messages}]
        assert events.wait(SlowConsumer).peer.name == "stopped"
        [channel] = node.statistics().channels
        assert channel.tcp is not None and channel.tcp.backlog_bytes <= (8 << 20) + 70_000
        stopped.signal(signal.SIGCONT)
        actor.tell()


def take_all(place: list[Any]) -> None:
    """Subscribe until killed."""
    with Place(*place).open("victim", **ALONE, peers=LOOPBACK, listen=0) as node:
        subscription = node.subscribe("/x", queue=100_000)
        while True:
            if subscription.receive(10) is not None and subscription.pending == 0:
                say("loaded")


def test_readers_that_are_killed_again_and_again_leave_nothing_behind() -> None:
    place, messages, opened = fresh_place(), 3_000, []
    options = {**ALONE, "peers": LOOPBACK, "listen": 0}
    with (
        place.open("p", **ALONE, repair_window_ms=1000) as node,  # So long the dead are owed.
        acting(count, place, messages, options) as survivor,
    ):
        assert survivor.hear() == "ready"
        publisher = node.publisher("/x")
        assert publisher.wait_for_subscribers(1, 10)
        for part in range(3):
            with acting(take_all, place) as victim:
                assert publisher.wait_for_subscribers(2, 10)
                publish_all(publisher, range(part * 1000, part * 1000 + 500))
                assert victim.hear() == "loaded"
                victim.signal(signal.SIGKILL)
                publish_all(publisher, range(part * 1000 + 500, part * 1000 + 1000))
            wait_until(lambda: connections_of(node) == 1)
            wait_until(lambda: publisher.receivers == 1)
            opened.append(len(descriptors()))
        assert survivor.hear() == [True, 0, {"tcp": messages}]
        assert opened[-1] <= opened[0], opened
        survivor.tell()


def test_strangers_that_say_garbage_or_nothing_are_let_go_and_disturb_nobody() -> None:
    place, messages = fresh_place(), 5_000
    with place.open("p", **ALONE) as node:
        address = ("127.0.0.1", place.port)
        garbage = [b"GET / HTTP/1.1\r\n\r\n", os.urandom(500), struct.pack("!I", 2**31)]
        strangers = [socket.create_connection(address) for _ in range(6)]
        for stranger, said in zip(strangers, garbage, strict=False):
            stranger.sendall(said)
        with acting(count, place, messages, {**ALONE, "peers": LOOPBACK}) as actor:
            assert actor.hear() == "ready"
            publisher = node.publisher("/x")
            assert publisher.wait_for_subscribers(1, 10)
            publish_all(publisher, range(messages))
            assert actor.hear() == [True, 0, {"tcp": messages}]
            actor.tell()
        wait_until(lambda: node.statistics().channels[0].tcp.refused == 6)  # type: ignore[union-attr]
        for stranger in strangers:
            stranger.close()


# Beside multicast and pipes of this host.


def test_one_receiver_elsewhere_is_served_by_tcp_and_several_by_the_group() -> None:
    place = fresh_place()
    with place.open("p", **BESIDE) as node, place.open("a", **BESIDE, peers=LOOPBACK) as one:
        subscription, publisher = one.subscribe("/x"), node.publisher("/x")
        assert publisher.wait_for_subscribers(1, 10)
        wait_until(lambda: [one.link for one in publisher.subscribers()] == ["tcp"])
        publish_all(publisher, range(50))
        assert {message.link for message in take(subscription, 50)} == {"tcp"}
        with place.open("b", **BESIDE, peers=LOOPBACK) as other:
            second = other.subscribe("/x")
            assert publisher.wait_for_subscribers(2, 10)
            wait_until(lambda: [one.link for one in publisher.subscribers()] == ["tcp"] * 2)

            def are_served_by_the_group() -> bool:
                publish_all(publisher, range(50))
                came = take(second, 50) + take(subscription, 50)
                return {message.link for message in came} == {"multicast"}

            wait_until(are_served_by_the_group)  # Once both were heard there.
        wait_until(lambda: publisher.receivers == 1)
        publish_all(publisher, range(50))
        assert {message.link for message in take(subscription, 50)} == {"tcp"}


def test_connection_that_breaks_in_the_midst_falls_over_to_the_group() -> None:
    place, messages = fresh_place(), 30_000
    options = {**BESIDE, "peers": LOOPBACK}
    with place.open("p", **BESIDE) as node, acting(count, place, messages, options) as actor:
        assert actor.hear() == "ready"
        publisher = node.publisher("/x")
        assert publisher.wait_for_subscribers(1, 10)
        for part in range(3):
            wait_until(lambda: connections_of(node) == 1)
            publish_all(publisher, range(part * 10_000, (part + 1) * 10_000))
            break_connections(node)
        is_complete, pending, links = actor.hear()
        assert is_complete and pending == 0 and links.keys() == {"tcp", "multicast"}, links
        actor.tell()


def test_pipe_of_this_host_is_preferred_to_tcp_and_both_go_together() -> None:
    place = fresh_place()
    both = {"links": ["local", "tcp"], "peers": LOOPBACK}
    with place.open("p", links=["local", "tcp"]) as node, place.open("near", **both) as near:
        subscription, publisher = near.subscribe("/x"), node.publisher("/x")
        assert publisher.wait_for_subscribers(1, 10)
        wait_until(lambda: connections_of(node) == 1)
        wait_until(lambda: publisher.subscribers()[0].link == "local")
        publish_all(publisher, range(50))
        assert {message.link for message in take(subscription, 50)} == {"local"}
        with place.open("far", **ALONE, peers=LOOPBACK) as far:
            elsewhere = far.subscribe("/x")
            assert publisher.wait_for_subscribers(2, 10)
            publish_all(publisher, range(50), 100_000)
            assert {message.link for message in take(elsewhere, 50)} == {"tcp"}
            assert {message.link for message in take(subscription, 50)} == {"local"}


def test_nothing_is_left_open() -> None:
    place = fresh_place()
    threads = threading.active_count()
    for _ in range(3):
        with (
            place.open("p", **ALONE) as node,
            place.open("s", **ALONE, peers=[*LOOPBACK, "127.0.0.1:1", "nowhere.invalid"]) as other,
        ):
            subscription = other.subscribe("/x")
            assert node.publisher("/x").wait_for_subscribers(1, 10)
            subscription.close()
    wait_until(lambda: threading.active_count() <= threads)
    with socket.socket() as again:
        again.bind(("127.0.0.1", place.port))


# Two hosts.


def receive_there(place: list[Any], options: dict[str, Any], messages: int) -> None:
    """Receive at the other end of a cable."""
    leave()
    count(place, messages, {"interface": "there", **options})


def cable_without_multicast() -> None:
    is_able()
    place, messages = fresh_place(), 20_000
    with acting(receive_there, place, {**ALONE, "peers": [HERE]}, messages) as actor:
        assert actor.hear() == "elsewhere"
        add_host(actor)
        with place.open("here", interface="here", **ALONE) as node:
            actor.tell()
            assert actor.hear() == "ready"
            publisher = node.publisher("/x")
            assert publisher.wait_for_subscribers(1, 20)
            publish_all(publisher, range(messages - 5))
            publish_all(publisher, range(messages - 5, messages), 1 << 20)
            assert actor.hear() == [True, 0, {"tcp": messages}]
            [peer] = node.statistics().channels[0].peers
            assert peer.address.startswith(f"{THERE}:")
            actor.tell()


@pytest.mark.netns
def test_two_hosts_talk_by_tcp_alone() -> None:
    run_scenario(cable_without_multicast)


def cable_pulled_out() -> None:
    is_able()
    place, messages = fresh_place(), 3_000
    with acting(receive_there, place, {**ALONE, "peers": [HERE]}, messages) as actor:
        assert actor.hear() == "elsewhere"
        add_host(actor)
        with place.open("here", interface="here", **ALONE, repair_window_ms=60_000) as node:
            actor.tell()
            assert actor.hear() == "ready"
            publisher = node.publisher("/x")
            assert publisher.wait_for_subscribers(1, 20)
            publish_all(publisher, range(1000))
            ip("link set here down")
            publish_all(publisher, range(1000, 2000))
            wait_until(lambda: connections_of(node) == 0, 20)
            ip("link set here up")
            wait_until(lambda: connections_of(node) == 1)
            publish_all(publisher, range(2000, 3000))
            assert actor.hear() == [True, 0, {"tcp": messages}]
            actor.tell()


@pytest.mark.netns
def test_cable_that_is_out_for_a_while_costs_nothing_by_tcp() -> None:
    run_scenario(cable_pulled_out)


def receive_beyond(place: list[Any], messages: int) -> None:
    """Receive at the other end of a cable, where no multicast comes from or goes."""
    leave()
    count(place, messages, {"interface": "there", **BESIDE, "peers": [HERE], **narrow(place)})


def narrow(place: list[Any] | Place) -> dict[str, Any]:
    """Let multicast not leave the host."""
    return {"channels": [hubbub.Channel(place[0], place[1], ttl=0)]}


def cable_without_multicast_beside_one_with() -> None:
    is_able()
    place, messages = fresh_place(), 5_000
    with acting(receive_beyond, place, messages) as actor:
        assert actor.hear() == "elsewhere"
        add_host(actor)
        with (
            place.open("here", interface="here", **BESIDE, **narrow(place)) as node,
            place.open("near", interface="here", links=["multicast"], **narrow(place)) as near,
        ):
            actor.tell()
            assert actor.hear() == "ready"
            subscription, publisher = near.subscribe("/x", queue=messages), node.publisher("/x")
            assert publisher.wait_for_subscribers(2, 20)
            publish_all(publisher, range(messages))
            assert {message.link for message in take(subscription, messages)} == {"multicast"}
            assert actor.hear() == [True, 0, {"tcp": messages}]
            actor.tell()


@pytest.mark.netns
def test_one_whom_the_group_does_not_reach_is_served_beside_it() -> None:
    run_scenario(cable_without_multicast_beside_one_with)

"""Pipes as a core sees them: the way frames take, who may speak in them, what their end means."""

import pytest

from hubbub.events import PeerLeft, SlowConsumer, VersionMismatch
from hubbub.limits import MS
from hubbub.protocol.burst import Burst, FarPipes, Pipes
from hubbub.wire import header
from hubbub.wire.header import DATA, HEARTBEAT
from tests.harness import Lan, Node


def test_frames_take_pipes_only_where_all_receivers_have_one() -> None:
    lan = Lan(1)
    one, other = lan.open(2)
    publisher = lan.nodes[0].core
    publisher.publish_on(lan.now, "/a")
    framer = publisher.outgoing.reliable.framer
    group_bytes = framer.body_bytes_max
    assert framer.route is None
    publisher.open_pipe(lan.now, one.key)
    assert framer.route is None
    publisher.open_pipe(lan.now, other.key)
    assert framer.route is not None and set(framer.route) == {one.key, other.key}
    assert framer.body_bytes_max > group_bytes
    assert [publisher.peers[node.key].reach for node in (one, other)] == [
        Pipes((one.key,)),
        Pipes((other.key,)),
    ]
    publisher.close_pipe(lan.now, one.key, is_dead=False)
    assert framer.route is None and framer.body_bytes_max == group_bytes
    assert one.key in publisher.peers, "it lives, and is reached by other ways"


def next_frame(lan: Lan, *, is_piped: bool) -> tuple[Burst, Node]:
    """Let one node publish two messages to another that it has met; return what it sends."""
    (subscriber,) = lan.open(1)
    publisher = lan.nodes[0]
    topic = publisher.core.publish_on(lan.now, "/a")
    lan.publish(publisher, topic, b"first")
    lan.run(30 * MS)
    if is_piped:
        publisher.core.open_pipe(lan.now, subscriber.key)
        lan.run(30 * MS)
    framer = publisher.core.outgoing.reliable.framer
    for payload in (b"second", b"third"):
        framer.add(topic, payload, lan.now)
    while (burst := publisher.core.next_burst(lan.now)) is not None:
        data = b"".join(burst.buffers)
        if data[header.KIND_OFFSET] == DATA:
            return burst, subscriber
    raise AssertionError("nothing was sent")


def test_batches_have_a_checksum_where_they_go_by_a_network_and_none_in_a_pipe() -> None:
    for is_piped in (False, True):
        burst, _ = next_frame(Lan(1), is_piped=is_piped)
        assert isinstance(burst.destination, Pipes) == is_piped
        frame = b"".join(burst.buffers)
        checksum = header.decode(frame).checksum
        assert (checksum == 0) == is_piped
        assert header.is_intact(frame, 0, len(frame), checksum) != is_piped


@pytest.mark.parametrize(("kind", "is_taken"), [(Pipes, True), (FarPipes, False), (None, False)])
def test_frame_without_a_checksum_is_taken_from_a_pipe_of_this_host_alone(
    kind: type[Pipes] | None, is_taken: bool
) -> None:
    lan = Lan(1)
    burst, subscriber = next_frame(lan, is_piped=True)
    publisher = lan.nodes[0]
    source = publisher.address if kind is None else kind((publisher.key,))
    subscriber.core.receive(lan.now, b"".join(burst.buffers), 0, source)
    assert subscriber.core.endpoint.drops["checksum"] == (not is_taken)
    came = [list(delivery.payloads) for delivery in subscriber.core.deliveries]
    assert came == ([[b"second", b"third"]] if is_taken else [])


def test_end_of_a_process_ends_its_peer_at_once() -> None:
    lan = Lan(1)
    (subscriber,) = lan.open(1)
    publisher = lan.nodes[0]
    publisher.core.open_pipe(lan.now, subscriber.key)
    publisher.core.close_pipe(lan.now, subscriber.key, is_dead=False)
    assert publisher.core.peers, "it may live, and be heard again"
    publisher.core.close_pipe(lan.now, subscriber.key, is_dead=True)
    assert publisher.core.peers == {} and publisher.core.outgoing.flow.receivers == {}
    assert [event.reason for event in publisher.core.events if isinstance(event, PeerLeft)] == [
        "died"
    ]


def test_reader_that_falls_behind_is_reported_once_and_passed_by_until_it_gets_on() -> None:
    lan = Lan(1)
    one, other = lan.open(2)
    core = lan.nodes[0].core
    core.publish_on(lan.now, "/a")
    for node in (one, other):
        core.open_pipe(lan.now, node.key)
    behind = core.endpoint.behind = {one.key}
    for _ in range(2):
        core.reroute(lan.now)
    [slow] = [event for event in core.events if isinstance(event, SlowConsumer)]
    assert slow.peer == one.core.endpoint.source and core.outgoing.is_slow(one.key)
    assert core.outgoing.reliable.framer.route == Pipes((other.key,))
    behind.clear()
    core.reroute(lan.now)
    assert not core.outgoing.is_slow(one.key)
    behind.add(one.key)
    core.reroute(lan.now)
    assert core.endpoint.counters["slow_receivers"] == 2


@pytest.mark.parametrize("kind", [Pipes, FarPipes])
def test_frame_of_another_version_in_a_pipe_is_reported_with_its_place(kind: type[Pipes]) -> None:
    lan = Lan(1)
    core = lan.nodes[0].core
    frame = bytearray(header.finish(header.prefix(HEARTBEAT, 0, 0, 0, b"s" * 20, 8), 0, 1, 1, b""))
    frame[2] = 0x70
    core.receive(lan.now, bytes(frame), 0, kind((b"s" * 20,)))
    [event] = [event for event in core.events if isinstance(event, VersionMismatch)]
    assert (event.address, event.version) == ("this host", 7)


def test_who_is_at_the_end_of_a_pipe_speaks_for_itself_alone() -> None:
    lan = Lan(1)
    (subscriber,) = lan.open(1)
    core, key = subscriber.core, lan.nodes[0].key
    shared = header.prefix(HEARTBEAT, 0, 0, core.endpoint.domain, key, 8)
    forged = header.finish(shared, 0, 1, 1, b"")
    core.receive(lan.now, forged, 0, Pipes((b"s" * 20,)))
    assert core.endpoint.drops["pipe"] == 1
    core.receive(lan.now, forged, 0, Pipes((key,)))
    assert core.endpoint.drops["pipe"] == 1

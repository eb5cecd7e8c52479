"""The whole protocol of a node: what it hears, counts, reports and leaves behind."""

from collections.abc import Callable

import pytest

from hubbub.events import Closed, GapAbandoned, Nagging, PeerJoined, PeerLeft, VersionMismatch
from hubbub.limits import MS, SECOND
from hubbub.wire import control, header
from hubbub.wire.control import Goodbye, Grant, GrantedStream
from hubbub.wire.header import DATA, GOODBYE, GRANT, HEARTBEAT, HELLO, NAK, RELIABLE, STATUS
from tests.harness import Datagram, Lan, Node, lose_first

STRANGER = b"s" * 20


def frame(node: Node, kind: int, body: bytes = b"", *, key: bytes = STRANGER) -> bytes:
    """Make a frame that `node` would hear."""
    shared = header.prefix(kind, header.OPEN_BITMAP, 1, node.core.endpoint.domain, key, 8)
    return header.finish(shared, 0, 1, 1, body) + body


def pair() -> tuple[Lan, Node, Node]:
    """Return a lan with a publisher and a subscriber that know each other."""
    lan = Lan(1)
    (subscriber,) = lan.open(1)
    return lan, lan.nodes[0], subscriber


def damage(at: int, value: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([value]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("short", lambda data: data[:69]),
        ("magic", damage(0, 0)),
        ("version", damage(2, 0x20)),
        ("domain", damage(10, 0)),
        ("sealed", damage(5, header.SEALED)),
        ("checksum", damage(69, 0)),
        ("checksum", lambda data: data + b"more"),
    ],
)
def test_frame_that_is_not_for_us_is_counted_by_reason(
    reason: str, change: Callable[[bytes], bytes]
) -> None:
    lan, _, node = pair()
    before = dict(node.drops)
    node.core.receive(lan.now, change(frame(node, HELLO)), 0, ("x", 1))
    assert node.drops == before | {reason: 1}
    assert len(node.core.peers) == 1


def test_unknown_kind_and_empty_datagram_change_nothing() -> None:
    lan, publisher, node = pair()
    node.core.receive(lan.now, b"", 0, ("x", 1))
    node.core.receive(lan.now, frame(node, 200, key=publisher.key), 0, publisher.address)
    assert node.drops["kind"] == 1


def test_own_frame_that_comes_back_is_not_heard() -> None:
    lan, _, node = pair()
    node.core.receive(lan.now, frame(node, HEARTBEAT, key=node.key), 0, ("x", 1))
    assert node.drops["own"] == 1


@pytest.mark.parametrize("kind", [NAK, GOODBYE])
def test_request_and_farewell_of_a_stranger_are_counted_and_not_answered(kind: int) -> None:
    lan, _, node = pair()
    lan.sent.clear()
    body = (
        control.encode_nak(node.key, [1, 2], 100)
        if kind == NAK
        else control.encode(Goodbye([(1, 5)]))
    )
    node.core.receive(lan.now, frame(node, kind, body), 0, ("x", 1))
    lan.pump(node)
    assert node.drops["stranger"] == 1 and lan.sent == []


def test_forged_frame_of_a_stranger_does_not_make_us_flood_its_alleged_sender() -> None:
    lan, _, node = pair()
    lan.sent.clear()
    heartbeat = control.encode_heartbeat(control.Heartbeat(1, 2000, []))
    node.core.receive(lan.now, frame(node, HEARTBEAT, heartbeat), 0, ("x", 1))
    lan.run(10 * SECOND)
    assert 3 <= len(lan.sent_of(header.WANT)) <= 8


def test_minor_version_is_heard_and_major_version_is_reported_once_a_source() -> None:
    lan, publisher, node = pair()
    newer = bytearray(frame(node, HEARTBEAT, control.encode_heartbeat(
        control.Heartbeat(1, 2000, [])), key=publisher.key))  # fmt: skip
    newer[2] = header.MAJOR << 4 | 7
    newer[66:70] = header.CRC.pack(header.crc32(bytes(newer[70:]), header.crc32(bytes(newer[:66]))))
    node.core.receive(lan.now, bytes(newer), 0, publisher.address)
    assert node.drops == {}
    for source in (("x", 1), ("x", 1), ("y", 1)):
        node.core.receive(lan.now, damage(2, 0x20)(frame(node, HELLO)), 0, source)
    node.drain(lan.now)
    assert [event.address for event in node.events_of(VersionMismatch)] == ["x:1", "y:1"]
    assert node.drops["version"] == 3


def test_domains_do_not_mix_even_in_requests() -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    (other,) = lan.open(1, domain="other")
    topic = publisher.core.publish_on(lan.now, "/a")
    lan.publish(publisher, topic, b"x")
    lan.run(1 * SECOND)
    assert other.received == [] and not other.core.peers and not publisher.core.peers
    assert other.drops["domain"] > 0


@pytest.mark.parametrize("is_own_domain", [True, False])
def test_request_of_another_domain_is_not_served_though_all_else_is_right(
    is_own_domain: bool,
) -> None:
    lan, publisher, node = pair()
    topic = publisher.core.publish_on(lan.now, "/a")
    lan.run(10 * MS)
    lan.lose = lambda datagram, _: datagram.kind in (DATA, STATUS)  # So it is kept for repair.
    lan.publish(publisher, topic, b"x")
    lan.lose = lambda *_: True
    nak = bytearray(
        frame(publisher, NAK, control.encode_nak(publisher.key, [1], 100), key=node.key)
    )
    if not is_own_domain:
        nak[10] ^= 1
        nak[66:70] = header.CRC.pack(header.crc32(bytes(nak[70:]), header.crc32(bytes(nak[:66]))))
    publisher.core.receive(lan.now, bytes(nak), 0, node.address)
    lan.run(50 * MS)
    assert publisher.core.outgoing.reliable.repairs_sent == is_own_domain
    assert publisher.drops.get("domain", 0) == (not is_own_domain)


def test_domains_whose_numbers_collide_are_told_apart_by_name() -> None:
    lan = Lan(2)
    second = lan.nodes[1]
    object.__setattr__(second.core.endpoint.identity, "domain", "collides")
    lan.run(200 * MS)
    assert lan.nodes[0].events_of(PeerJoined) == []
    assert lan.nodes[0].drops["domain"] > 0


def test_joined_frames_are_taken_apart_by_the_segment_size() -> None:
    lan, publisher, node = pair()
    topic = publisher.core.publish_on(lan.now, "/a")
    lan.run(10 * MS)
    held: list[Datagram] = []
    lan.lose = lambda datagram, _: datagram.kind == DATA and not held.append(datagram)  # type: ignore[func-returns-value]
    lan.publish(publisher, topic, *[bytes(1000)] * 5)
    sizes = {len(each.data) for each in held[1:]}
    assert len(held) == 5 and len(sizes) == 1
    node.core.receive(lan.now, held[0].data, 0, publisher.address)
    joined = b"".join(each.data for each in held[1:])
    node.core.receive(lan.now, joined, sizes.pop(), publisher.address)
    node.drain(lan.now)
    assert [got.sequence for got in node.received] == [1, 2, 3, 4, 5]


def test_frames_not_taken_are_counted_as_what_they_are() -> None:
    lan, publisher, node = pair()
    topic = publisher.core.publish_on(lan.now, "/a")
    lan.run(10 * MS)
    lan.publish(publisher, topic, b"x")
    lan.run(1 * MS)
    data = lan.sent_of(DATA)[-1].data
    node.core.receive(lan.now, data, 0, publisher.address)
    assert node.drops == {"duplicate": 1}
    shared = header.prefix(DATA, header.OPEN_BITMAP, 1, node.core.endpoint.domain, publisher.key, 8)
    malformed = header.finish(shared, 99, 1, 1, b"\xff" * 40) + b"\xff" * 40
    node.core.receive(lan.now, malformed, 0, publisher.address)
    assert node.drops == {"duplicate": 1, "malformed": 1}


def test_message_published_while_opening_waits_for_who_is_there() -> None:
    lan = Lan(0)
    (subscriber,) = lan.open(1)
    publisher = lan.add()
    topic = publisher.core.publish_on(lan.now, "/a")
    lan.publish(publisher, topic, b"first words")
    lan.run(60 * MS)
    assert subscriber.payloads("/a") == [b"first words"]


def test_open_publish_close_reaches_everybody_despite_loss() -> None:
    for seed in range(20):
        lan = Lan(0, seed=seed)
        subscribers = lan.open(3)
        lan.lose = lambda _datagram, _node, lan=lan: lan.random.random() < 0.1
        publisher = lan.add()
        topic = publisher.core.publish_on(lan.now, "/a")
        lan.publish(publisher, topic, b"all there is")
        publisher.core.close(lan.now, 2 * SECOND)
        lan.run(2 * SECOND)
        assert publisher.core.is_closed
        assert [node.payloads("/a") for node in subscribers] == [[b"all there is"]] * 3


def test_node_that_leaves_repairs_what_receivers_lack_though_their_requests_are_lost() -> None:
    lan, publisher, node = pair()
    topic = publisher.core.publish_on(lan.now, "/a")
    lan.run(10 * MS)
    is_first_lost = lose_first(1, kind=DATA)
    lan.lose = lambda datagram, to: datagram.kind == NAK or is_first_lost(datagram, to)
    lan.publish(publisher, topic, b"last words")
    publisher.core.close(lan.now, 1 * SECOND)
    lan.run_until(lambda: publisher.core.is_closed, 1 * SECOND)
    assert node.payloads("/a") == [b"last words"]


def test_closing_ends_at_its_linger_even_if_nobody_answers() -> None:
    lan, publisher, node = pair()
    topic = publisher.core.publish_on(lan.now, "/a")
    lan.run(10 * MS)
    node.is_running = False
    lan.publish(publisher, topic, b"unheard")
    publisher.core.close(lan.now, 300 * MS)
    assert not lan.run_until(lambda: publisher.core.is_closed, 299 * MS)
    assert lan.run_until(lambda: publisher.core.is_closed, 2 * MS)
    publisher.drain(lan.now)
    assert publisher.events_of(Closed)


def test_goodbye_lets_the_tail_be_repaired_before_the_peer_is_gone() -> None:
    lan, publisher, node = pair()
    topic = publisher.core.publish_on(lan.now, "/a")
    lan.run(10 * MS)
    lan.lose = lose_first(2, kind=DATA)
    lan.publish(publisher, topic, b"last")
    publisher.core.close(lan.now, 1 * SECOND)
    lan.run(1 * SECOND)
    assert node.payloads("/a") == [b"last"]
    assert node.events_of(GapAbandoned) == []
    [left], [joined] = node.events_of(PeerLeft), node.events_of(PeerJoined)
    assert left.reason == "closed"
    assert (left.host, left.pid, left.address) == (joined.host, joined.pid, joined.address)


def test_killed_publisher_leaves_one_reported_hole_for_what_nobody_can_repair() -> None:
    lan = Lan(1, heartbeat_ms=50, peer_timeout_ms=150, repair_window_ms=500)
    publisher = lan.nodes[0]
    (node,) = lan.open(1)
    topic = publisher.core.publish_on(lan.now, "/a")
    lan.run(10 * MS)
    lan.lose = lambda datagram, _: datagram.kind == DATA and datagram.sequence == 2
    for payload in (b"1", b"2", b"3"):
        lan.publish(publisher, topic, payload)
    lan.run(200_000)
    publisher.is_running = False
    lan.run(3 * SECOND)
    assert node.payloads("/a") == [b"1", b"3"]
    (gap,) = node.events_of(GapAbandoned)
    assert (gap.subject, gap.first, gap.last) == ("/a", 2, 2)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"repair_rounds": 5}, "given_up"),
        ({"repair_time_ms": 300}, "given_up"),
        ({"repair_window_ms": 300}, "not_available"),
    ],
)
def test_frame_that_is_not_to_be_had_is_one_hole_and_the_stream_goes_on(
    options: dict[str, float], reason: str
) -> None:
    lan = Lan(1, **options)
    publisher = lan.nodes[0]
    (node,) = lan.open(1)
    topic = publisher.core.publish_on(lan.now, "/a")
    lan.run(10 * MS)
    lan.lose = lambda datagram, _: (
        datagram.kind == NAK or (datagram.kind == DATA and datagram.sequence == 2)
    )
    for payload in (b"1", b"2", b"3"):
        lan.publish(publisher, topic, payload)
        lan.run(1 * MS)
    lan.run(500 * MS)  # Longer than it is asked for, or kept.
    lan.lose = lambda *_: False
    lan.publish(publisher, topic, b"4")
    lan.run(1 * SECOND)
    assert node.payloads("/a") == [b"1", b"3", b"4"]
    [gap] = node.events_of(GapAbandoned)
    assert (gap.subject, gap.first, gap.last, gap.reason) == ("/a", 2, 2, reason)
    assert node.core.endpoint.counters["messages_lost"] == 1


def test_end_that_one_does_not_acknowledge_is_told_by_the_heartbeats_in_the_end() -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    dead, other = lan.open(2)  # Two, so that the stream goes to the group.
    topic = publisher.core.publish_on(lan.now, "/a")
    lan.run(10 * MS)
    other.core.close(lan.now, 0)
    dead.is_running = False
    lan.publish(publisher, topic, b"unheard")
    lan.run(3 * SECOND)
    before = len(lan.sent_of(HEARTBEAT, publisher))
    lan.run(5 * SECOND)
    assert publisher.core.outgoing.reliable.tail_ns is not None
    assert len(lan.sent_of(HEARTBEAT, publisher)) - before == 5


def test_silent_publisher_that_comes_back_is_reported_both_ways() -> None:
    lan = Lan(2, heartbeat_ms=50, peer_timeout_ms=150)
    lan.run(200 * MS)
    first, _ = lan.nodes
    lan.lose = lambda *_: True
    lan.run(500 * MS)
    lan.lose = lambda *_: False
    lan.run(500 * MS)
    kinds = [type(event) for event in first.events]
    assert kinds == [PeerJoined, PeerLeft, PeerJoined]


def test_own_subscription_gets_own_messages_by_loopback_without_a_frame() -> None:
    lan = Lan(1)
    (node,) = lan.nodes
    topic = node.core.publish_on(lan.now, "/a")
    topic.sinks = ("a subscription",)
    lan.run(60 * MS)
    lan.publish(node, topic, b"to myself", bytes(5000))
    assert node.payloads("/a") == [b"to myself", bytes(5000)]
    assert lan.sent_of(DATA) == []


@pytest.mark.parametrize("policy", ["report", "resync"])
def test_nagging_policies_other_than_suspend_go_on(policy: str) -> None:
    lan = Lan(1, nagging_window_ms=100, nagging_check_ms=300, nagging_requests=3,
              nagging_policy=policy)  # fmt: skip
    publisher = lan.nodes[0]
    (node,) = lan.open(1)
    topic = publisher.core.publish_on(lan.now, "/a")
    lan.run(10 * MS)
    lan.lose = lambda datagram, _: datagram.kind == DATA and datagram.sequence % 5 == 2
    for number in range(100):
        lan.publish(publisher, topic, b"%d" % number)
        lan.run(10 * MS)
    (event,) = node.events_of(Nagging)
    assert event.policy == policy
    lan.lose = lambda *_: False
    lan.run(2 * SECOND)
    gaps = node.events_of(GapAbandoned)
    assert bool(gaps) == (policy == "resync")
    assert {gap.reason for gap in gaps} <= {"nagging"}
    lost = sum(gap.last - gap.first + 1 for gap in gaps)
    assert len(node.received) + lost == 100


def test_unknown_streams_of_a_grant_and_a_goodbye_are_left_alone() -> None:
    lan, publisher, node = pair()
    streams = [GrantedStream(number, 1, 1, True) for number in (0, 2, 9, 65_535)]
    grant = Grant(node.key, 0, False, node.core.interest.version, 0, 1, 2000, streams, [])
    body = control.encode(grant)
    node.core.receive(lan.now, frame(node, GRANT, body, key=publisher.key), 0, publisher.address)
    (peer,) = node.core.peers.values()
    assert not peer.incoming
    goodbye = control.encode(Goodbye([(number, 5) for number in range(1000)]))
    node.core.receive(lan.now, frame(node, GOODBYE, goodbye, key=publisher.key), 0, ("x", 1))
    assert peer.ends == {1: 5, 3: 5}


def test_frames_whose_grant_never_comes_are_not_kept_for_ever() -> None:
    lan, publisher, node = pair()
    body = frame(node, DATA, bytes(1000), key=publisher.key)
    for _ in range(50):
        node.core.receive(lan.now, body, 0, publisher.address)
    (peer,) = node.core.peers.values()
    assert peer.early_bytes == 50 * len(body)
    lan.run(4 * SECOND)
    assert peer.early_bytes == 0 and not peer.early


def test_grant_for_an_interest_we_never_had_is_not_believed() -> None:
    lan, publisher, node = pair()
    grant = Grant(node.key, 0, False, 2**40, 0, 1, 2000, [GrantedStream(1, 1, 1, True)], [])
    body = control.encode(grant)
    node.core.receive(lan.now, frame(node, GRANT, body, key=publisher.key), 0, publisher.address)
    (peer,) = node.core.peers.values()
    assert not peer.incoming


def test_idle_node_sends_little_and_wakes_seldom() -> None:
    lan = Lan(2)
    lan.run(1 * SECOND)
    lan.sent.clear()
    lan.run(10 * SECOND)
    assert len(lan.sent) <= 22
    assert {each.kind for each in lan.sent} == {HEARTBEAT}


def test_status_is_sent_seldom_and_at_the_end() -> None:
    lan, publisher, node = pair()
    topic = publisher.core.publish_on(lan.now, "/a")
    lan.run(100 * MS)
    before = len(lan.sent_of(STATUS, node))
    for number in range(1000):
        lan.publish(publisher, topic, b"%d" % number)
        lan.run(100_000)
    lan.run(100 * MS)
    assert len(lan.sent_of(STATUS, node)) - before <= 12
    assert publisher.core.outgoing.cache.first is None, "everything is acknowledged"


def test_status_of_a_turn_that_began_before_the_last_frame_came_is_sent() -> None:
    lan, publisher, node = pair()
    topic = publisher.core.publish_on(lan.now, "/a")
    lan.run(100 * MS)
    lan.publish(publisher, topic, b"1")
    lan.run(50 * MS)
    core = node.core
    receiver = core.peers[publisher.key].incoming[RELIABLE]
    assert receiver.echo_us
    receiver.echo_ns, receiver.status_ns = lan.now + 5 * MS, lan.now
    core.due_ns = lan.now
    core.advance(lan.now)
    frames = [burst.buffers[0] for burst in core.endpoint.control]
    assert [header.decode(bytes(frame)).kind for frame in frames].count(STATUS) == 1


@pytest.mark.parametrize("obstacle", ["window", "rate limit"])
def test_held_back_frame_that_may_not_go_sets_no_timer_that_spins(obstacle: str) -> None:
    lan = Lan(1, rate_limit_bits=1_000_000 if obstacle == "rate limit" else 0)
    publisher = lan.nodes[0]
    lan.open(1)
    topic = publisher.core.publish_on(lan.now, "/a")
    lan.run(10 * MS)
    lan.lose = lambda datagram, _: obstacle == "window" and datagram.kind == STATUS
    lan.publish(publisher, topic, *[bytes(1000 if obstacle == "window" else 10)] * 2000)
    wakes = 0
    until = lan.now + 100 * MS
    while (deadline := publisher.core.deadline() or until) < until:
        lan.now = max(lan.now, deadline)
        publisher.core.advance(lan.now)
        lan.pump(publisher)
        wakes += 1
        assert wakes < 200


def test_window_that_closes_while_nothing_waits_is_noted_with_the_next_message() -> None:
    lan = Lan(1, cache_bytes=70_000, slow_ms=100)
    publisher = lan.nodes[0]
    lan.open(1)
    topic = publisher.core.publish_on(lan.now, "/a")
    lan.run(10 * MS)
    lan.lose = lambda datagram, _: datagram.kind == STATUS
    core, sender = publisher.core, publisher.core.outgoing.reliable
    while not sender.is_blocked():
        lan.publish(publisher, topic, bytes(1000))
    assert not sender.framer.cells and not sender.is_waiting()
    core.due_ns = lan.now + SECOND
    sender.framer.add(topic, b"next", 0)
    assert core.next_burst(lan.now) is None
    assert sender.is_waiting() and core.due_ns == lan.now + 100 * MS

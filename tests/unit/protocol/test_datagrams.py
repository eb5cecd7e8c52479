"""Datagrams as a link: where they lead, what goes by them, and what says that they get there."""

import pytest

from hubbub.limits import MS, SECOND
from hubbub.protocol.burst import NOWHERE, Burst, ChosenPipes, FarPipes, Pipes, Straight
from hubbub.protocol.core import Core
from hubbub.protocol.delivery import DATAGRAM, INPROC, LOCAL, MULTICAST, TCP
from hubbub.protocol.framing import Framer
from hubbub.protocol.ways import Ways
from hubbub.wire.control import Hello, PlacedHello, decode, encode
from hubbub.wire.header import HEADER_BYTES, HEARTBEAT, HELLO, KIND_OFFSET, NAK
from tests.harness import make_core

A, B, C = b"a" * 20, b"b" * 20, b"c" * 20
THERE, ELSEWHERE = ("10.0.0.2", 7002), ("10.0.0.3", 7003)
BOTH = (DATAGRAM, TCP)


def test_each_receiver_has_an_address_beside_pipes_and_group() -> None:
    ways = Ways()
    chosen = ways.choose({A: DATAGRAM, B: TCP, C: MULTICAST}, (), [THERE])
    assert chosen == ChosenPipes((), (B,), has_group=True, addresses=[THERE])
    assert ways.choose({A: DATAGRAM, B: DATAGRAM}, (), [THERE, ELSEWHERE]) == ChosenPipes(
        addresses=[THERE, ELSEWHERE]
    )
    assert ways.choose({A: ""}, (), []) is NOWHERE
    assert ChosenPipes(addresses=[THERE]) != ChosenPipes(addresses=[ELSEWHERE])


def test_frames_that_go_by_datagram_too_are_of_the_size_of_datagrams() -> None:
    framer = Framer(1, 1400, 0, 1000, 1 << 20, 1, 0)
    framer.take_route(Pipes((A,)))
    large = framer.body_bytes_max
    framer.take_route(ChosenPipes((A,), addresses=[THERE]))
    assert framer.body_bytes_max < 1400 < large


def test_address_that_came_straight_is_as_good_as_any() -> None:
    assert Straight(THERE) == THERE and {THERE: 1}[Straight(THERE)] == 1


def test_only_who_has_a_port_tells_one() -> None:
    core = make_core(1)
    plain = core._introduction()
    core.endpoint.datagram_port = 7001
    placed = decode(PlacedHello, encode(core._introduction()))
    assert type(plain) is Hello and placed is not None and placed.datagram_port == 7001
    assert decode(Hello, encode(placed)) == plain, "older nodes read the rest"
    older = decode(PlacedHello, encode(plain))
    assert older is not None and older.datagram_port == 0


class Pair:
    """Two nodes that are connected by TCP and have no group."""

    def __init__(self, *links: tuple[str, ...], silent: int = 0) -> None:
        self.now = SECOND
        self.cores = [make_core(number, self.now) for number in (1, 2)]
        for number, core in enumerate(self.cores, 1):
            core.endpoint.links = links[number - 1]
            if DATAGRAM in core.endpoint.links and number != silent:
                core.endpoint.datagram_port = 7000 + number
            core.endpoint.ways.has_group = False
        self.sent: list[tuple[int, Burst]] = []
        self.is_open = True  # Whether datagrams come through.
        self.lost = 0
        for core, other in (self.cores, self.cores[::-1]):
            number = self.cores.index(other) + 1
            core.open_pipe(self.now, other.endpoint.key, link=TCP, place=f"10.0.0.{number}:40000")

    def run(self, time_ns: int) -> None:
        """Let time pass, a millisecond at a time."""
        for _ in range(time_ns // MS):
            self.now += MS
            for number, core in enumerate(self.cores, 1):
                core.advance(self.now)
                while (burst := core.next_burst(self.now)) is not None:
                    self.sent.append((number, burst))
                    self.carry(number, self.cores[2 - number], burst)

    def carry(self, number: int, target: Core, burst: Burst) -> None:
        frames = b"".join(burst.buffers)
        destination = burst.destination
        if destination is None or isinstance(destination, Pipes):
            source = FarPipes((self.cores[number - 1].endpoint.key,))
            source.place = f"10.0.0.{number}:40000"
            target.receive(self.now, frames, burst.segment_bytes, source)
        elif self.is_open and destination == (f"10.0.0.{3 - number}", 7003 - number):
            straight = Straight((f"10.0.0.{number}", 7000 + number))
            target.receive(self.now, frames, burst.segment_bytes, straight)
        else:
            self.lost += 1

    def link(self, number: int) -> str:
        core, other = self.cores[number - 1], self.cores[2 - number]
        return core.outgoing.grants.link_to(core.peers[other.endpoint.key], BOTH)

    def straight(self, kind: int) -> list[Burst]:
        """Return what went by datagram of a kind."""
        found = [burst for _, burst in self.sent if not isinstance(burst.destination, Pipes | None)]
        return [one for one in found if b"".join(one.buffers)[KIND_OFFSET] == kind]


HAS_BOTH = (TCP, DATAGRAM)


def test_nodes_that_are_connected_find_where_the_other_takes_datagrams() -> None:
    pair = Pair(HAS_BOTH, HAS_BOTH)
    pair.run(100 * MS)
    assert pair.link(1) == pair.link(2) == DATAGRAM, "within milliseconds of the HELLO"
    assert {one.destination for one in pair.straight(HEARTBEAT)} == {
        ("10.0.0.1", 7001), ("10.0.0.2", 7002),
    }  # fmt: skip
    assert not pair.straight(HELLO)
    before = len(pair.straight(HEARTBEAT))
    pair.run(3 * SECOND)
    assert len(pair.straight(HEARTBEAT)) - before == 2 * 3, "each once a heartbeat"


@pytest.mark.parametrize("links", [(HAS_BOTH, (TCP,)), ((TCP,), HAS_BOTH)])
def test_nobody_is_probed_who_does_not_take_datagrams(links: tuple[tuple[str, ...], ...]) -> None:
    pair = Pair(*links)
    pair.run(1500 * MS)
    assert pair.link(1) == pair.link(2) == TCP
    assert not pair.straight(HEARTBEAT)


def test_who_was_not_told_to_use_datagrams_neither_probes_nor_is_probed() -> None:
    pair = Pair(HAS_BOTH, HAS_BOTH, silent=2)
    pair.run(1500 * MS)
    assert pair.link(1) == pair.link(2) == TCP and not pair.straight(HEARTBEAT)


def test_way_that_falls_silent_is_left_and_taken_again() -> None:
    pair = Pair(HAS_BOTH, HAS_BOTH)
    pair.run(100 * MS)
    pair.is_open = False
    pair.run(4 * SECOND)
    assert pair.link(1) == pair.link(2) == TCP
    assert pair.lost >= 6, "they go on trying"
    pair.is_open = True
    pair.run(1100 * MS)
    assert pair.link(1) == pair.link(2) == DATAGRAM


def test_best_effort_goes_to_the_address_and_what_is_lost_is_not_asked_for() -> None:
    pair = Pair(HAS_BOTH, HAS_BOTH)
    one, other = pair.cores
    other.subscribe(pair.now, "/x")
    topic = one.publish_on(pair.now, "/x", is_reliable=False, links=BOTH)
    pair.run(100 * MS)
    sender = one.outgoing.sender_of(topic)
    assert sender.framer.destination == ("10.0.0.2", 7002) and sender.flow is sender.cache is None
    for number in range(5):
        pair.is_open = number not in (1, 2)
        sender.framer.add(topic, b"%d" % number, 0)
        pair.run(20 * MS)
    got = [payload for delivery in other.deliveries for payload in delivery.payloads]
    assert got == [b"0", b"3", b"4"]
    assert {getattr(one.link, "link", one.link) for one in other.deliveries} == {DATAGRAM}
    [receiver] = other.peers[one.endpoint.key].incoming.values()
    assert [topic.lost for topic in receiver.topics.values()] == [2]
    pair.run(SECOND)
    kinds = {b"".join(burst.buffers)[KIND_OFFSET] for _, burst in pair.sent}
    assert NAK not in kinds and not receiver.requester.missing


def test_heartbeat_of_one_who_is_connected_does_not_make_it_one_of_the_group() -> None:
    pair = Pair((INPROC, LOCAL, MULTICAST, TCP, DATAGRAM), HAS_BOTH)
    one, other = pair.cores
    one.endpoint.ways.has_group = True
    pair.run(3 * SECOND)
    peer = one.peers[other.endpoint.key]
    assert peer.straight_ns is not None and peer.grouped_ns is None
    assert one.outgoing.grants.link_to(peer, (MULTICAST, DATAGRAM)) == DATAGRAM


def test_body_of_a_probe_names_no_stream() -> None:
    pair = Pair(HAS_BOTH, HAS_BOTH)
    pair.run(50 * MS)
    assert all(len(b"".join(one.buffers)) < HEADER_BYTES + 40 for one in pair.straight(HEARTBEAT))

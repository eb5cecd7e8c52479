"""Whatever a peer sends to the services of a node, nothing raises, and what is kept is bounded."""

import os
import socket
from random import Random

import pytest

from hubbub.limits import MS, SECOND, SERVICES_MAX
from hubbub.protocol.rendezvous.rendezvous import Rendezvous
from hubbub.protocol.rendezvous.seat import Place, Seat
from hubbub.wire.header import ANSWER, MEMBERS, NOTICE, SERVICE
from hubbub.wire.payloads import join
from hubbub.wire.services import (
    BATCH,
    CHANGE_SERVICE_MANAGER,
    INFO,
    LEAVING,
    NODE_BYTES,
    PUBLISH,
    RETAIN,
    Answer,
    Copy,
    Entry,
    Extra,
    Inquiry,
    Inventory,
    Kept,
    Known,
    ListTaken,
    Managed,
    Members,
    Message,
    Query,
    Record,
    Reply,
    Request,
    Result,
    encode_answers,
    encode_members,
    encode_message,
    encode_notice,
    encode_request,
    service_key,
)

DOMAIN = 7
NODE = b"abcdefghijkl"
NAMES = ["a", "b", "c"]
NO_HOSTS = [
    "",
    "a\0b",
    "host.invalid",
    "1.2.3",
    "300.0.0.1",
    "::1::",
    "fe80::1%a\0b",
    "\N{DIGIT ONE}.0",
]


class Mallory:
    """Somebody who knows the format, and means no good."""

    def __init__(self, seed: int, victim: Rendezvous) -> None:
        self.random = Random(seed)
        self.victim = victim
        self.ids = [NODE, *(self.random.randbytes(NODE_BYTES) for _ in range(6))]
        self.seats = [Seat(one, 5, DOMAIN, self.random, 0) for one in self.ids[1:]]

    def number(self) -> int:
        extremes = [2**31, 2**32 - 1] if self.random.random() < 0.1 else []
        return self.random.choice([*extremes, 0, 1, 2, 7, self.random.getrandbits(20)])

    def big(self) -> int:
        extremes = [2**62, 2**63 - 1, 2**64 - 1] if self.random.random() < 0.1 else []
        return self.random.choice([*extremes, 0, 1, 5, 9, self.random.getrandbits(50)])

    def key(self) -> bytes:
        name = self.random.choice(NAMES)
        return service_key(name) if self.random.random() < 0.9 else self.random.randbytes(20)

    def id(self) -> bytes:
        return self.random.choice(self.ids)

    def source(self) -> Place:
        return f"10.0.0.{self.random.randrange(9)}", self.random.choice([1, 7266, 65_535])

    def place(self) -> Place:
        if self.random.random() < 0.05:
            return self.random.choice(NO_HOSTS), self.random.choice([0, 7266])
        return self.source()

    def entries(self) -> list[Entry]:
        return [
            Entry(
                self.id(),
                self.big(),
                self.random.random() < 0.5,
                self.number() & 7,
                self.place(),
                self.patterns(),
            )
            for _ in range(self.random.randrange(4))
        ]

    def patterns(self) -> list[str]:
        return self.random.sample(["/x/*", "/...", "", "a//b"], self.random.randrange(3))

    def record(self) -> Record:
        host, port = self.place()
        states = self.random.randrange(4)
        return Record(self.id(), host, port, self.big(), self.big(), states, 1)

    def request(self) -> bytes:
        type = self.random.randrange(5)
        rest = b"" if type < 2 else self.random.randbytes(self.random.choice([1, 12, 24]))
        if type == CHANGE_SERVICE_MANAGER:
            rest = self.id() + b"".join(self.id() for _ in range(self.random.randrange(3)))
        if type in (PUBLISH, INFO) and self.random.random() < 0.4:
            rest = join([self.random.randbytes(self.random.randrange(9)) for _ in range(4)])
        batch = BATCH if self.random.random() < 0.3 else 0
        flags = batch | self.number() & 0xFFFF & ~(LEAVING if self.random.random() < 0.9 else 0)
        extra = Extra(
            self.place(), "x", b"", [self.id() for _ in range(self.random.randrange(9))],
            self.random.randrange(4), self.random.randint(1, 4), self.entries(), self.big(),
            self.random.choice(["", "/x/y", "not/one"]), self.patterns(),
        )  # fmt: skip
        return encode_request(Request(
            self.number(), flags, self.random.randrange(256), self.id(), self.big(), self.big(),
            self.number(), self.random.randrange(3_600_000), self.big(),
            Message(type, self.key(), rest), extra,
        ))  # fmt: skip

    def notice(self) -> bytes:
        key, number, big = self.key(), self.number(), self.big()
        notices = [
            Result(key, self.random.randrange(6), big, self.random.randrange(9), number, big),
            Query(key), Known(key, self.random.randrange(8), self.id(), True),
            Copy(key, "x", number, big, number, big, False, self.entries()),
            ListTaken(key, number, number), Reply(key, big, b"x"),
            Kept(key, number, big, self.id(), big, big, number, b"x"), Inquiry(number),
            Inquiry(number, key, is_listing=True),
            Inventory(number, [Managed(key, "x", number, big, number)], [], [self.id()]),
        ]  # fmt: skip
        return encode_notice(self.number(), self.random.choice(notices))

    def members(self, own: bytes) -> bytes:
        records = [self.record() for _ in range(self.random.randrange(5))]
        first = Record(own, "", self.number() & 0xFFFF, self.big(), self.big(), 0)
        form = self.random.randrange(7)
        return encode_members(
            Members(form, self.number(), self.id(), self.big(), [first, *records])
        )

    def answers(self) -> bytes:
        hops = [hop for track in self.victim.hops.tracks.values() for hop in track.sent] or [
            self.number()
        ]
        answers = [
            Answer(self.random.choice(hops), self.random.randrange(8), self.number(), self.big())
            for _ in range(self.random.randrange(5))
        ]
        return encode_answers(answers, [self.record()])

    def datagram(self) -> bytes:
        seat = self.random.choice(self.seats)
        draw = self.random.random()
        if draw < 0.05:
            return encode_message(Message(self.random.randrange(7), self.key(), self.id()))
        if draw < 0.1:
            return self.random.randbytes(self.random.randrange(200))
        bodies = {
            SERVICE: self.request, NOTICE: self.notice, ANSWER: self.answers,
            MEMBERS: lambda: self.members(seat.node),
        }  # fmt: skip
        kind = self.random.choice(list(bodies))
        body = bytearray(bodies[kind]())
        if body and self.random.random() < 0.3:
            body[self.random.randrange(len(body))] ^= 1 << self.random.randrange(8)
        return seat.make_frame(kind, bytes(body[: self.random.choice([len(body), len(body) // 2])]))


def send_strictly(place: Place) -> None:
    """Refuse what a socket refuses, and what it would look up: in figures, or not at all."""
    host, port = place
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    socket.inet_pton(family, host.partition("%")[0])
    assert "\0" not in host and 0 < port < 1 << 16


_SENDER = slice(14, 14 + NODE_BYTES)  # Of a frame.
IS_SOAK = os.environ.get("HUBBUB_SOAK") == "1"


@pytest.mark.soak
@pytest.mark.parametrize("group", [None, ("239.0.0.1", 7267)])
@pytest.mark.parametrize("seed", range(100 if IS_SOAK else 3))
def test_nothing_that_a_peer_sends_raises(seed: int, group: Place | None) -> None:
    victim = Rendezvous(0, NODE, 1, DOMAIN, Random(seed), seeds=[("10.0.0.1", 1)], group=group)
    mallory, now = Mallory(seed, victim), 0
    victim.subscribe(0, "a", order="total")
    victim.subscribe(0, "b", order="fifo")
    for turn in range(3000):
        now += mallory.random.choice([0, MS, 50 * MS, SECOND])
        data, place = mallory.datagram(), mallory.source()
        if group is None or mallory.random.random() < 0.5:
            victim.receive(now, data, place)
        else:
            sender = victim.view.members.get(data[_SENDER])
            places = [place] if sender is None else [place, sender.place]
            victim.receive_group(now, data, mallory.random.choice(places))
        if victim.deadline() <= now:
            victim.advance(now)
        if turn % 50 == 0:
            victim.publish(now, mallory.random.choice(NAMES), b"x", flags=turn & RETAIN)
        victim.flush()
        for place, _ in victim.out:
            send_strictly(place)
        victim.out.clear()
        victim.seat.deliveries.clear()
        victim.seat.settled.clear()
    assert len(victim.manager.services) <= SERVICES_MAX
    assert victim.seat.drops["malformed"] > 0
    assert victim.seat.drops["place"] > 0
    heard = victim.seat.drops["group_kind"] + victim.seat.counters["group_ignored"]
    assert bool(heard) is (group is not None)
    for service in victim.manager.services.values():
        assert service.listing.count == sum(line.is_in for line in service.listing.lines.values())

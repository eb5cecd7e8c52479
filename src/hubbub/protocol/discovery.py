"""Finding each other: HELLO at once, answers, heartbeats, and who was not heard for too long.

A node that opens says HELLO every few milliseconds for a short while and lists the peers that it
knows already (as multicast DNS lists known answers): who is on the list stays silent, so the
repetition costs little and outlasts loss. A HELLO is a snapshot of all that the node declares; what
changes later is told by CHANGE (announcing.py), and a peer that missed it sees the version in the
next heartbeat and asks with WANT for another snapshot. All frames are small, and an answer to a
stranger is never larger than what a rate limit allows.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from random import Random
from zlib import crc32

from msgspec.structs import replace

from hubbub.limits import (
    ANNOUNCE_INTERVAL,
    DEPARTED_MAX,
    HEARTBEAT,
    MS,
    OPENING,
    OPENING_HELLO_INTERVAL,
    OPENING_LATE,
    OPENING_MAX,
    OPENING_WHEN_CLOSING,
    PEERS_MAX,
    REPLY_DELAY_MAX,
    REPLY_DELAY_PER_PEER,
    STRANGERS_MAX,
    WANT_INTERVAL,
)
from hubbub.protocol.announcing import Announcer
from hubbub.protocol.burst import Address
from hubbub.protocol.declared import News
from hubbub.protocol.peers import Peer
from hubbub.protocol.state import State, describe
from hubbub.wire import control
from hubbub.wire.control import Hello, PlacedHello, Publication
from hubbub.wire.header import split_key

_KNOWN_MAX = 64
_KNOWN_BYTES = 5
_HELLO_MARGIN_BYTES = 48  # Versions, numbers of parts and lists grow with what is declared.
_PATTERN_OVERHEAD_BYTES = 3
_PUBLICATION_OVERHEAD_BYTES = 20
_REPLIES_BURST = 64


class Discovery:
    """Who is there, and when to say that we are."""

    def __init__(
        self,
        now: int,
        random: Random,
        state: State,
        introduction: Callable[[], Hello],
        send: Callable[[Address | None, bytes], None],
        send_change: Callable[[bytes], None],
        body_bytes_max: int,
        heartbeat_ns: int = HEARTBEAT,
    ) -> None:
        self.random = random
        self.state = state
        self.introduction = introduction
        self.send = send
        self.body_bytes_max = body_bytes_max
        self.announcer = Announcer(state, send_change, body_bytes_max, now)
        self.heartbeat_interval_ns = heartbeat_ns
        self.peers: dict[bytes, Peer] = {}
        self.strangers: dict[bytes, Peer] = {}  # Who has not said yet who it is, the oldest first.
        # Who is gone for good -> (end of its reliable stream, number of its debt to us).
        self.departed: OrderedDict[bytes, tuple[dict[int, int], int]] = OrderedDict()
        self._has_begun = False
        self._began_ns = now
        self._look_ns = OPENING  # For how long to look around, from the first HELLO or a stall on.
        self.opens_ns = now + OPENING
        self._expected: frozenset[bytes] = frozenset()
        self.hello_ns: int | None = now
        self.hellos_left = OPENING // OPENING_HELLO_INTERVAL
        self.hello_interval_ns = OPENING_HELLO_INTERVAL
        self.heartbeat_ns = now + heartbeat_ns
        self.replies: dict[Address, int] = {}
        self._replies_ns: int | None = None  # When the first of them is due, or sooner.
        self.refused = 0
        self._reply_tokens = float(_REPLIES_BURST)
        self._reply_stamp_ns = now

    def find(self, key: bytes, address: Address, now: int) -> Peer | None:
        """Return the peer of this key, made if need be; None for one that left, or one too many."""
        peer = self.peers.get(key)
        if peer is None:
            if key in self.departed or not self._make_room():
                self.refused += 1
                return None
            peer = self.peers[key] = self.strangers[key] = Peer(key, address, now)
            peer.want_ns = now + 1 * MS  # Unless its HELLO is just coming.
        return peer

    def _make_room(self) -> bool:
        """Let a flood of forged strangers push out only each other, never a peer that is known."""
        while self.strangers and (
            len(self.strangers) >= STRANGERS_MAX or len(self.peers) >= PEERS_MAX
        ):
            key, stranger = next(iter(self.strangers.items()))
            del self.strangers[key]
            if not stranger.is_known and self.peers.pop(key, None) is not None:
                self.refused += 1
        return len(self.peers) < PEERS_MAX

    def announce(self, now: int) -> None:
        """Tell at once what has changed in what we declare, and again twice."""
        self.announcer.changed(now)

    def has_looked(self, now: int) -> bool:
        """Tell whether all who are here have had the time to say what they want.

        Not so after a stall: nobody was asked meanwhile, and what was answered is still to be read.
        """
        if self._is_late(now, self.opens_ns):
            self._look_until(now, now + self._look_ns)
        if now >= self.opens_ns and self._is_expecting(now):
            self.opens_ns = now + OPENING_HELLO_INTERVAL
        return now >= self.opens_ns

    def expect(self, keys: Iterable[bytes]) -> None:
        """Open only when these have said what they want, or have had much longer than others."""
        self._expected = frozenset(keys)

    def _is_expecting(self, now: int) -> bool:
        if not self._expected or now >= self._began_ns + OPENING_WHEN_CLOSING:
            return False
        known = {key for key, peer in self.peers.items() if peer.is_known}
        return not self._expected <= known

    def look_longer(self, now: int) -> None:
        """Look around for longer than usual, because what waits to be sent is all there will be."""
        self._look_ns = OPENING_WHEN_CLOSING
        self._look_until(now, self._began_ns + self._look_ns)

    def _look_until(self, now: int, end_ns: int) -> None:
        self.opens_ns = max(self.opens_ns, end_ns)
        self.hello_ns = now
        self.hello_interval_ns = ANNOUNCE_INTERVAL
        self.hellos_left = max((end_ns - now) // ANNOUNCE_INTERVAL, 1)

    def _is_late(self, now: int, planned_ns: int) -> bool:
        """Tell whether we were kept from running; a node that always is opens all the same."""
        return now >= planned_ns + OPENING_LATE and now < self._began_ns + OPENING_MAX

    def take_hello(self, now: int, peer: Peer, hello: PlacedHello, own_key: bytes) -> News | None:
        """Learn from a HELLO, and plan an answer; return what became known by it."""
        # The first part tells whom it knows.
        if not hello.is_reply and not hello.part and crc32(own_key) not in hello.known:
            self._plan_reply(now, peer)
        peer.introduce(now, hello)
        declared = peer.declared
        if hello.version <= declared.version and peer.is_known:
            return None
        snapshot = declared.collect(hello)
        if snapshot is None:
            return None
        news = declared.replace(hello, *snapshot)
        peer.want_ns = now + WANT_INTERVAL if declared.is_behind else None
        peer.want_interval_ns = WANT_INTERVAL
        self.strangers.pop(peer.key, None)
        return news

    def _plan_reply(self, now: int, peer: Peer) -> None:
        delay_max = min(REPLY_DELAY_MAX, REPLY_DELAY_PER_PEER * len(self.peers))
        delay = self.random.randrange(delay_max) if delay_max else 0
        due_ns = self.replies.setdefault(peer.reach, now + delay)
        self._replies_ns = due_ns if self._replies_ns is None else min(self._replies_ns, due_ns)

    def reply(self, now: int, address: Address) -> None:
        """Answer one address with HELLO, within the rate limit."""
        self._reply_tokens = min(
            self._reply_tokens + (now - self._reply_stamp_ns) / MS, _REPLIES_BURST
        )
        self._reply_stamp_ns = now
        if self._reply_tokens < 1:
            self.refused += 1
            return
        self._reply_tokens -= 1
        self.introduce(address)

    def _say_hello(self) -> None:
        for body in self._hellos(is_reply=False):
            self.send(None, body)

    def introduce(self, address: Address) -> None:
        """Tell one other who we are and what we declare."""
        for body in self._hellos(is_reply=True):
            self.send(address, body)

    def advance(self, now: int) -> None:
        """Say HELLO to all, and answer those who wait for it."""
        if self.hello_ns is not None and now >= self.hello_ns:
            if not self._has_begun:
                # Only now can anybody answer, however long it took to come this far.
                self._has_begun = True
                self._began_ns, self.opens_ns = now, now + self._look_ns
            elif self._is_late(now, self.hello_ns):
                self._look_until(now, now + self._look_ns)
            self._say_hello()
            self.hellos_left -= 1
            self.hello_ns = now + self.hello_interval_ns if self.hellos_left else None
        if not self.announcer.advance(now):
            self._say_hello()
        if self._replies_ns is not None and now >= self._replies_ns:
            for address in [address for address, due in self.replies.items() if due <= now]:
                del self.replies[address]
                self.reply(now, address)
            self._replies_ns = min(self.replies.values(), default=None)

    def deadline(self) -> int:
        """Return when `advance` has something to do, or a heartbeat is due."""
        times = (self.heartbeat_ns, self.hello_ns, self._replies_ns, self.announcer.deadline())
        return min(time for time in times if time is not None)

    def depart(self, peer: Peer) -> None:
        """Remember that a peer is gone for good, so that late frames of it change nothing."""
        self.peers.pop(peer.key, None)
        self.departed[peer.key] = (peer.reliable_ends(), peer.their_debt)
        while len(self.departed) > DEPARTED_MAX:
            self.departed.popitem(last=False)

    def forgive(self, identifier: bytes) -> None:
        """Let other incarnations of a silent node return.

        A late frame of an old incarnation looks like a restart, and ends the one that lives.
        """
        for key in [key for key in self.departed if split_key(key)[0] == identifier]:
            del self.departed[key]

    def _hellos(self, *, is_reply: bool) -> list[bytes]:
        """Write who we are and what we declare, in as many parts as that takes."""
        base = self.introduction()
        known = [] if is_reply else self._known()
        parts = list(self._parts(len(control.encode(base)) + _HELLO_MARGIN_BYTES))
        return [
            control.encode(
                replace(
                    base,
                    interest_version=self.state.interest.version,
                    part=part,
                    parts=len(parts),
                    patterns=patterns,
                    known=[] if part else known,
                    is_reply=is_reply,
                    version=self.state.version,
                    publications=publications,
                )
            )
            for part, (patterns, publications) in enumerate(parts)
        ]

    def _parts(self, overhead_bytes: int) -> Iterator[tuple[list[str], list[Publication]]]:
        """Split what we declare; the same version is always split at the same places."""
        full = self.body_bytes_max - overhead_bytes
        room = full - _KNOWN_MAX * _KNOWN_BYTES  # Whom we know stands in the first part.
        patterns: list[str] = []
        publications: list[Publication] = []
        for pattern in self.state.interest.patterns:
            size = len(pattern.encode()) + _PATTERN_OVERHEAD_BYTES
            if size > room and room < full:
                yield patterns, []
                patterns, room = [], full
            room -= size
            patterns.append(pattern)
        for publication in map(describe, self.state.topics.values()):
            size = _size_of(publication)
            if size > room and room < full:
                yield patterns, publications
                patterns, publications, room = [], [], full
            room -= size
            publications.append(publication)
        yield patterns, publications

    def _known(self) -> list[int]:
        known = [crc32(peer.key) for peer in self.peers.values() if peer.is_known]
        return known[-_KNOWN_MAX:]


def _size_of(publication: Publication) -> int:
    """Say how large a publication is in a HELLO, whatever its sequence is by then."""
    names = publication.subject + publication.schema_name
    return len(names.encode()) + _PUBLICATION_OVERHEAD_BYTES + (8 if publication.schema_hash else 0)

"""Finding each other: HELLO at once, answers, heartbeats, and who was not heard for too long.

A node that opens says HELLO every few milliseconds for a short while and lists the peers that it
knows already (as multicast DNS lists known answers): who is on the list stays silent, so the
repetition costs little and outlasts loss. A change of interest is announced at once and repeated; a
peer that missed all of it sees the version in the next heartbeat and asks with WANT. All frames are
small, and an answer to a stranger is never larger than what a rate limit allows.
"""

from collections import OrderedDict
from collections.abc import Callable
from random import Random
from zlib import crc32

from hubbub.errors import SubjectError
from hubbub.limits import (
    ANNOUNCE_INTERVAL,
    ANNOUNCE_REPEATS,
    DEPARTED_MAX,
    HEARTBEAT,
    MS,
    OPENING,
    OPENING_HELLO_INTERVAL,
    OPENING_WHEN_CLOSING,
    PATTERNS_MAX,
    PEERS_MAX,
    REPLY_DELAY_MAX,
    REPLY_DELAY_PER_PEER,
    STRANGERS_MAX,
    WANT_INTERVAL,
)
from hubbub.protocol.burst import Address
from hubbub.protocol.peers import Peer
from hubbub.subjects import Matcher
from hubbub.wire import control
from hubbub.wire.control import Hello
from hubbub.wire.header import RELIABLE, split_key

_KNOWN_MAX = 64
_HELLO_OVERHEAD_BYTES = 512
_REPLIES_BURST = 64


class Interest:
    """What this node wants: patterns with counts, and the version of their set."""

    def __init__(self) -> None:
        self.version = 1
        self.patterns: dict[str, int] = {}
        self.matcher: Matcher[None] = Matcher()
        self._handles: dict[str, object] = {}

    def add(self, pattern: str) -> bool:
        """Count a pattern in; True if the set changed."""
        self.patterns[pattern] = self.patterns.get(pattern, 0) + 1
        if self.patterns[pattern] > 1:
            return False
        self._handles[pattern] = self.matcher.add(pattern, None)
        self.version += 1
        return True

    def remove(self, pattern: str) -> bool:
        """Count a pattern out; True if the set changed."""
        self.patterns[pattern] -= 1
        if self.patterns[pattern]:
            return False
        del self.patterns[pattern]
        self.matcher.remove(self._handles.pop(pattern))  # type: ignore[arg-type]
        self.version += 1
        return True

    def includes(self, subject: str) -> bool:
        """Tell whether any pattern matches."""
        return bool(self.matcher.match(subject))


class Discovery:
    """Who is there, and when to say that we are."""

    def __init__(
        self,
        now: int,
        random: Random,
        interest: Interest,
        introduction: Callable[[], Hello],
        send: Callable[[Address | None, bytes], None],
        body_bytes_max: int,
        heartbeat_ns: int = HEARTBEAT,
    ) -> None:
        self.random = random
        self.interest = interest
        self.introduction = introduction
        self.send = send
        self.body_bytes_max = body_bytes_max
        self.heartbeat_interval_ns = heartbeat_ns
        self.peers: dict[bytes, Peer] = {}
        self.strangers: dict[bytes, Peer] = {}  # Who has not said yet who it is, the oldest first.
        # Who is gone for good -> (end of its reliable stream, number of its debt to us).
        self.departed: OrderedDict[bytes, tuple[int, int]] = OrderedDict()
        self._has_begun = False
        self._began_ns = now
        self.opens_ns = now + OPENING
        self.hello_ns: int | None = now
        self.hellos_left = OPENING // OPENING_HELLO_INTERVAL
        self.hello_interval_ns = OPENING_HELLO_INTERVAL
        self.heartbeat_ns = now + heartbeat_ns
        self.replies: dict[Address, int] = {}
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
        """Say HELLO now, and again twice."""
        self.hello_ns = now
        self.hellos_left = max(self.hellos_left, 1 + ANNOUNCE_REPEATS)
        if now >= self.opens_ns:
            self.hello_interval_ns = ANNOUNCE_INTERVAL

    def look_longer(self, now: int) -> None:
        """Look around for longer than usual, because what waits to be sent is all there will be."""
        self.opens_ns = max(self.opens_ns, self._began_ns + OPENING_WHEN_CLOSING)
        self.announce(now)
        self.hello_interval_ns = ANNOUNCE_INTERVAL
        self.hellos_left = (OPENING_WHEN_CLOSING - OPENING) // ANNOUNCE_INTERVAL

    def take_hello(self, now: int, peer: Peer, hello: Hello, own_key: bytes) -> bool:
        """Learn from a HELLO, and plan an answer; True when its interest became known anew."""
        if not hello.is_reply and crc32(own_key) not in hello.known:
            delay_max = min(REPLY_DELAY_MAX, REPLY_DELAY_PER_PEER * len(self.peers))
            delay = self.random.randrange(delay_max) if delay_max else 0
            self.replies.setdefault(peer.reach, now + delay)
        peer.introduce(hello)
        if hello.interest_version <= peer.interest_version and peer.is_known:
            return False
        patterns = peer.collect(hello)
        if patterns is None:
            return False
        peer.interest = self._matcher_of(patterns)
        peer.interest_version = hello.interest_version
        peer.want_ns = None
        peer.want_interval_ns = WANT_INTERVAL
        self.strangers.pop(peer.key, None)
        return True

    @staticmethod
    def _matcher_of(patterns: list[str]) -> Matcher[None]:
        matcher: Matcher[None] = Matcher()
        for pattern in patterns[:PATTERNS_MAX]:
            try:
                matcher.add(pattern, None)
            except SubjectError:
                continue
        return matcher

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

    def introduce(self, address: Address) -> None:
        """Tell one other who we are and what we want."""
        for body in self._hellos(is_reply=True):
            self.send(address, body)

    def advance(self, now: int) -> None:
        """Say HELLO to all, and answer those who wait for it."""
        if self.hello_ns is not None and now >= self.hello_ns:
            if not self._has_begun:
                # Only now can anybody answer, however long it took to come this far.
                self._has_begun = True
                self._began_ns, self.opens_ns = now, now + OPENING
            for body in self._hellos(is_reply=False):
                self.send(None, body)
            self.hellos_left -= 1
            self.hello_ns = now + self.hello_interval_ns if self.hellos_left else None
        for address in [address for address, due in self.replies.items() if due <= now]:
            del self.replies[address]
            self.reply(now, address)

    def deadline(self) -> int:
        """Return when `advance` has something to do, or a heartbeat is due."""
        times = [self.heartbeat_ns, *self.replies.values()]
        if self.hello_ns is not None:
            times.append(self.hello_ns)
        return min(times)

    def depart(self, peer: Peer) -> None:
        """Remember that a peer is gone for good, so that late frames of it change nothing."""
        self.peers.pop(peer.key, None)
        self.departed[peer.key] = ((peer.ends or {}).get(RELIABLE, 0), peer.their_debt)
        while len(self.departed) > DEPARTED_MAX:
            self.departed.popitem(last=False)

    def forgive(self, identifier: bytes) -> None:
        """Let other incarnations of a silent node return.

        A late frame of an old incarnation looks like a restart, and ends the one that lives.
        """
        for key in [key for key in self.departed if split_key(key)[0] == identifier]:
            del self.departed[key]

    def _hellos(self, *, is_reply: bool) -> list[bytes]:
        """Write who we are and what we want, in as many parts as that takes."""
        known = [] if is_reply else self._known()
        parts: list[list[str]] = [[]]
        room = full = self.body_bytes_max - _HELLO_OVERHEAD_BYTES
        for pattern in self.interest.patterns:
            size = len(pattern.encode()) + 3
            if size > room and parts[-1]:
                parts.append([])
                room = full
            room -= size
            parts[-1].append(pattern)
        base = self.introduction()
        return [
            control.encode(
                Hello(
                    base.name,
                    base.host,
                    base.pid,
                    base.domain,
                    self.interest.version,
                    part,
                    len(parts),
                    patterns,
                    base.window_bytes,
                    known,
                    is_reply,
                )
            )
            for part, patterns in enumerate(parts)
        ]

    def _known(self) -> list[int]:
        known = [crc32(peer.key) for peer in self.peers.values() if peer.is_known]
        return known[-_KNOWN_MAX:]

"""From node to node: what is sent is acknowledged, repeated, and given up, and the sender told.

One frame may go to several nodes under one number. Frames to one node are bounded: so many are on
their way, some more wait, and beyond that the oldest are given up, so that a node which takes
nothing costs the others nothing. Repeating may put frames out of order and bring them twice; what
is in them is made so that neither matters.
"""

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import NamedTuple

from hubbub.limits import HOP_TIMEOUT, HOP_TRIES
from hubbub.protocol.rendezvous.seat import NEVER, GivenUp, Place, Seat
from hubbub.protocol.rendezvous.track import Track
from hubbub.wire.services import Answer

# Told what became of a frame at a node; no answer: it was given up.
Done = Callable[[int, bytes, Answer | None], None]
_Key = tuple[int, bytes]


class _Sent(NamedTuple):
    place: Place
    frame: bytes
    done: Done
    tries: int
    due_ns: int


class Hops:
    """Frames to other nodes that are to be acknowledged."""

    def __init__(self, seat: Seat, suspect: Callable[[int, bytes], None]) -> None:
        self.seat = seat
        self._suspect = suspect
        self._hop = seat.random.getrandbits(31)
        self._sent: dict[_Key, _Sent] = {}
        self._timers: list[tuple[int, int, bytes]] = []
        self.tracks: dict[bytes, Track[tuple[_Key, _Sent]]] = {}
        self._crowded: set[bytes] = set()  # Those for whom something waits.

    @property
    def due_ns(self) -> int:
        """Return when something is to be repeated, at the latest."""
        return self._timers[0][0] if self._timers else NEVER

    @property
    def open(self) -> int:
        """Return how many frames are not acknowledged."""
        return len(self._sent) + sum(len(self.tracks[node].waiting) for node in self._crowded)

    def is_crowded(self, now: int) -> bool:
        """Tell whether somebody who gets on has much to catch up with."""
        return any(self.tracks[node].is_crowded(now) for node in self._crowded)

    def post(
        self, now: int, targets: Iterable[tuple[bytes, Place]], kind: int,
        make: Callable[[int], bytes], done: Done,
    ) -> None:  # fmt: skip
        """Send a frame to some nodes, each of which acknowledges it."""
        self._hop = self._hop + 1 & 0xFFFF_FFFF
        frame = self.seat.make_frame(kind, make(self._hop))
        for node, place in targets:
            self._post(now, (self._hop, node), _Sent(place, frame, done, 0, 0))

    def _post(self, now: int, key: _Key, sent: _Sent) -> None:
        node, size_bytes = key[1], len(sent.frame)
        track = self.tracks.get(node)
        if track is None:
            track = self.tracks[node] = Track(now)
        if track.has_room(size_bytes):
            track.begin(size_bytes)
            self._send(now, key, sent)
            return
        track.wait(now, (key, sent), size_bytes)
        self._crowded.add(node)
        if track.is_overfull:
            self.seat.counters["given_up_slow"] += 1
            self.seat.events.append(GivenUp(node))
            track.pop()[0][1].done(now, node, None)

    def _send(self, now: int, key: _Key, sent: _Sent) -> None:
        due_ns = now + (HOP_TIMEOUT << sent.tries)
        self._sent[key] = sent._replace(tries=sent.tries + 1, due_ns=due_ns)
        heappush(self._timers, (due_ns, *key))
        self.seat.out.append((sent.place, sent.frame))

    def take(self, now: int, node: bytes, answers: Iterable[Answer]) -> None:
        """Hear what became of frames at a node."""
        for answer in answers:
            sent = self._end(now, (answer.hop, node), is_acknowledged=True)
            if sent is None:
                self.seat.counters["answers_late"] += 1
            else:
                sent.done(now, node, answer)

    def _end(self, now: int, key: _Key, *, is_acknowledged: bool) -> _Sent | None:
        """Let go of a frame, and let the next ones go out."""
        sent = self._sent.pop(key, None)
        if sent is None:
            return None
        node = key[1]
        track = self.tracks[node]
        track.end(now, len(sent.frame), is_acknowledged=is_acknowledged)
        while (following := track.pop_next()) is not None:
            track.begin(following[1])
            self._send(now, *following[0])
        if not track.waiting:
            self._crowded.discard(node)
            if track.is_idle:
                del self.tracks[node]
        return sent

    def forget(self, now: int, node: bytes) -> None:
        """Give up all that was for a node that is gone."""
        track = self.tracks.pop(node, None)
        self._crowded.discard(node)
        if track is None:
            return
        keys = [key for key in self._sent if key[1] == node]
        ended = [self._sent.pop(key) for key in keys]
        for sent in [*ended, *(sent for (_, sent), _ in track.waiting)]:
            sent.done(now, node, None)

    def advance(self, now: int) -> None:
        """Repeat what was not acknowledged, or give it up."""
        while self._timers and self._timers[0][0] <= now:
            due_ns, hop, node = heappop(self._timers)
            sent = self._sent.get((hop, node))
            if sent is None or sent.due_ns != due_ns:
                continue
            if sent.tries == 2:
                self._suspect(now, node)
            if sent.tries >= HOP_TRIES:
                self.seat.counters["given_up"] += 1
                self._end(now, (hop, node), is_acknowledged=False)
                sent.done(now, node, None)
            else:
                self.seat.counters["repeated"] += 1
                self.tracks[node].repeat()
                self._send(now, (hop, node), sent)

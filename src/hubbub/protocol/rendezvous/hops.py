"""From node to node: what is sent is acknowledged, repeated, and given up, and the sender told.

One frame may go to several nodes under one number. Frames to one node are bounded: so many are on
their way, some more wait, and beyond that the oldest are given up, so that a node which takes
nothing costs the others nothing. Repeating may put frames out of order and bring them twice; what
is in them is made so that neither matters.
"""

from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import NamedTuple

from hubbub.limits import HOP_BACKLOG, HOP_TIMEOUT, HOP_TRIES, HOP_WINDOW
from hubbub.protocol.rendezvous.seat import NEVER, Place, Seat
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
        self._under_way: dict[bytes, int] = {}
        self._waiting: dict[bytes, deque[tuple[_Key, _Sent]]] = {}
        self._timers: list[tuple[int, int, bytes]] = []

    @property
    def due_ns(self) -> int:
        """Return when something is to be repeated, at the latest."""
        return self._timers[0][0] if self._timers else NEVER

    @property
    def open(self) -> int:
        """Return how many frames are not acknowledged."""
        return len(self._sent) + sum(map(len, self._waiting.values()))

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
        node = key[1]
        if self._under_way.get(node, 0) < HOP_WINDOW:
            self._under_way[node] = self._under_way.get(node, 0) + 1
            self._send(now, key, sent)
            return
        waiting = self._waiting.setdefault(node, deque())
        waiting.append((key, sent))
        if len(waiting) > HOP_BACKLOG:
            self.seat.counters["given_up_slow"] += 1
            waiting.popleft()[1].done(now, node, None)

    def _send(self, now: int, key: _Key, sent: _Sent) -> None:
        due_ns = now + (HOP_TIMEOUT << sent.tries)
        self._sent[key] = sent._replace(tries=sent.tries + 1, due_ns=due_ns)
        heappush(self._timers, (due_ns, *key))
        self.seat.out.append((sent.place, sent.frame))

    def take(self, now: int, node: bytes, answers: Iterable[Answer]) -> None:
        """Hear what became of frames at a node."""
        for answer in answers:
            sent = self._end(now, (answer.hop, node))
            if sent is None:
                self.seat.counters["answers_late"] += 1
            else:
                sent.done(now, node, answer)

    def _end(self, now: int, key: _Key) -> _Sent | None:
        """Let go of a frame, and let the next one go out."""
        sent = self._sent.pop(key, None)
        if sent is None:
            return None
        node = key[1]
        waiting = self._waiting.get(node)
        if waiting:
            self._send(now, *waiting.popleft())
            if not waiting:
                del self._waiting[node]
        elif self._under_way[node] > 1:
            self._under_way[node] -= 1
        else:
            del self._under_way[node]
        return sent

    def forget(self, now: int, node: bytes) -> None:
        """Give up all that was for a node that is gone."""
        waiting = self._waiting.pop(node, ())
        keys = [key for key in self._sent if key[1] == node]
        ended = [self._sent.pop(key) for key in keys]
        self._under_way.pop(node, None)
        for sent in [*ended, *(sent for _, sent in waiting)]:
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
                self._end(now, (hop, node))
                sent.done(now, node, None)
            else:
                self.seat.counters["repeated"] += 1
                self._send(now, (hop, node), sent)

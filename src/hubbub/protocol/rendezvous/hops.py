"""From node to node: what is sent is acknowledged, repeated, and given up, and the sender told.

One frame may go to several nodes under one number. Frames to one node are bounded: so many are on
their way, some more wait, and beyond that the oldest are given up, so that a node which takes
nothing costs the others nothing. Repeating may put frames out of order and bring them twice; what
is in them is made so that neither matters.
"""

from collections.abc import Callable, Iterable
from functools import partial
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

from hubbub.limits import HOP_TIMEOUT, HOP_TRIES
from hubbub.protocol.rendezvous.seat import NEVER, GivenUp, Place, Seat
from hubbub.protocol.rendezvous.track import Track
from hubbub.wire.header import HEADER_BYTES, KIND_OFFSET, SERVICE
from hubbub.wire.services import Answer, decode_request

# Told what became of a frame at a node; no answer: it was given up.
Done = Callable[[int, bytes, Answer | None], None]


_REPEAT_MAX: Final = HOP_TIMEOUT << HOP_TRIES - 1  # Between two repeats.


class _Sent(NamedTuple):
    hop: int
    place: Place
    frame: bytes
    done: Done
    tries: int
    due_ns: int
    first_ns: int  # When it was sent first.


new_sent: Any = partial(tuple.__new__, _Sent)  # Half of what calling it costs.


class Hops:
    """Frames to other nodes that are to be acknowledged."""

    def __init__(
        self, seat: Seat, suspect: Callable[[int, bytes], None],
        lose: Callable[[int, bytes, bytes], None],
    ) -> None:  # fmt: skip
        self.seat = seat
        self._suspect = suspect
        self._lose = lose  # Told of each frame that a node did not acknowledge.
        # Told who did not acknowledge what went to several together; set by who sends it so.
        self.missed: Callable[[int, bytes], None] = lambda now, node: None
        # Told which frame a node is late with; by what was to be done about it.
        self.late: Callable[[int, bytes, Done], None] = lambda now, node, done: None
        self.hop = seat.random.getrandbits(31)
        self._timers: list[tuple[int, bytes]] = []  # One a node, of its frame that is due first.
        self.tracks: dict[bytes, Track[_Sent]] = {}
        self.crowded: set[bytes] = set()  # Those for whom something waits.
        self.silent: set[bytes] = set()  # Those who are late, and acknowledge nothing.

    @property
    def due_ns(self) -> int:
        """Return when something is to be repeated, at the latest."""
        return self._timers[0][0] if self._timers else NEVER

    @property
    def open(self) -> int:
        """Return how many frames are not acknowledged."""
        return sum(len(track.sent) + len(track.waiting) for track in self.tracks.values())

    def has_room_behind(self, node: bytes) -> bool:
        """Tell whether little waits for a node, so that old messages leave room for new ones."""
        track = self.tracks.get(node)
        return track is None or track.has_room_behind

    def is_crowded(self, now: int) -> bool:
        """Tell whether somebody who gets on has much to catch up with."""
        if not self.crowded:
            return False
        return any(self.tracks[node].is_crowded(now) for node in self.crowded)

    def post(
        self, now: int, targets: Iterable[tuple[bytes, Place]], kind: int,
        make: Callable[[int], bytes], done: Done,
    ) -> None:  # fmt: skip
        """Send a frame to some nodes, each of which acknowledges it."""
        self.hop = hop = self.hop + 1 & 0xFFFF_FFFF
        self.put_out(now, targets, hop, self.seat.make_frame(kind, make(hop)), done)

    def put_out(
        self, now: int, targets: Iterable[tuple[bytes, Place]], hop: int, frame: bytes, done: Done
    ) -> None:
        """Send a frame that is made already to some nodes."""
        tracks, out = self.tracks, self.seat.out
        size_bytes = len(frame)
        for node, place in targets:
            track = tracks.get(node)
            due_ns = now + (HOP_TIMEOUT if track is None else track.timeout_ns)
            sent = new_sent((hop, place, frame, done, 1, due_ns, now))
            if track is None or track.due_ns > due_ns or not track.has_room(size_bytes):
                self._post(now, node, sent)
            else:  # As `_send`: nothing else is to be done.
                track.sent[hop] = sent
                track.size_bytes += size_bytes
                out.append((place, frame))

    def expect(
        self, now: int, targets: Iterable[tuple[bytes, Place]], hop: int, frame: bytes, done: Done
    ) -> None:
        """Note that a frame goes to some nodes together, each of which has room for it.

        It was not tried at any of them yet: who does not acknowledge it is sent it by itself.
        """
        tracks, size_bytes = self.tracks, len(frame)
        for node, place in targets:
            track = tracks.get(node)
            if track is None:
                track = tracks[node] = Track(now)
            due_ns = now + track.timeout_ns
            track.begin(hop, new_sent((hop, place, frame, done, 0, due_ns, now)), size_bytes)
            if due_ns < track.due_ns:
                track.due_ns = due_ns
                heappush(self._timers, (due_ns, node))

    def _post(self, now: int, node: bytes, sent: _Sent) -> None:
        size_bytes = len(sent.frame)
        track = self.tracks.get(node)
        if track is None:
            track = self.tracks[node] = Track(now)
        if track.has_room(size_bytes):
            self._send(track, node, sent)
            return
        track.wait(now, sent, size_bytes)
        self.crowded.add(node)
        while track.is_overfull:  # Several small ones may have to make way for a large one.
            oldest, _ = track.pop()
            messages = _count_messages(oldest.frame)
            self.seat.counters["given_up_slow"] += messages
            self.seat.events.append(GivenUp(node, messages))
            oldest.done(now, node, None)

    def _send(self, track: Track[_Sent], node: bytes, sent: _Sent) -> None:
        track.begin(sent.hop, sent, len(sent.frame))
        self._put_out(node, track, sent)

    def _put_out(self, node: bytes, track: Track[_Sent], sent: _Sent) -> None:
        if sent.due_ns < track.due_ns:
            track.due_ns = sent.due_ns
            heappush(self._timers, (sent.due_ns, node))
        self.seat.out.append((sent.place, sent.frame))

    def take(self, now: int, node: bytes, answers: Iterable[Answer]) -> None:
        """Hear what became of frames at a node."""
        for answer in answers:
            sent = self._end(now, node, answer.hop, is_acknowledged=True)
            if sent is None:
                self.seat.counters["answers_late"] += 1
                if node in self.tracks:
                    self.tracks[node].answered_again(answer.hop)
            else:
                sent.done(now, node, answer)

    def _end(self, now: int, node: bytes, hop: int, *, is_acknowledged: bool) -> _Sent | None:
        """Let go of a frame, and let the next ones go out."""
        track = self.tracks.get(node)
        sent = None if track is None else track.sent.pop(hop, None)
        if track is None or sent is None:
            return None
        track.end(now, len(sent.frame), is_acknowledged=is_acknowledged)
        if is_acknowledged:
            track.answered(hop, now - sent.first_ns, sent.tries)
            if self.silent:
                self.silent.discard(node)
        if track.waiting:
            due_ns = now + track.timeout_ns
            while (following := track.pop_next()) is not None:
                self._send(track, node, following[0]._replace(due_ns=due_ns, first_ns=now))
        if not track.waiting:
            self.crowded.discard(node)
        return sent

    def unacknowledged(self) -> list[tuple[bytes, bytes]]:
        """Return the frames that are open, and for which nodes."""
        return [(node, sent.frame) for node, track in self.tracks.items() for sent in track.open]

    def forget(self, now: int, node: bytes) -> None:
        """Give up all that was for a node that is gone."""
        track = self.tracks.pop(node, None)
        self.crowded.discard(node)
        self.silent.discard(node)
        if track is not None:
            for sent in track.open:
                self._lose(now, node, sent.frame)
                sent.done(now, node, None)

    def advance(self, now: int) -> None:
        """Repeat what was not acknowledged, or give it up."""
        while self._timers and self._timers[0][0] <= now:
            due_ns, node = heappop(self._timers)
            track = self.tracks.get(node)
            if track is None or track.due_ns != due_ns:
                continue
            track.due_ns = NEVER
            for sent in [one for one in track.sent.values() if one.due_ns <= now]:
                if track.sent.get(sent.hop) is sent:
                    self._repeat(now, node, track, sent)
            self._plan(node, track)

    def _repeat(self, now: int, node: bytes, track: Track[_Sent], sent: _Sent) -> None:
        if sent.tries == 2:
            self._suspect(now, node)
        if sent.tries >= HOP_TRIES:
            self.seat.counters["given_up"] += 1
            self._end(now, node, sent.hop, is_acknowledged=False)
            self._lose(now, node, sent.frame)
            sent.done(now, node, None)
            return
        if not sent.tries:
            self.missed(now, node)
            sent = sent._replace(first_ns=now)
        else:
            self._miss(now, node, track, sent)
        self.seat.counters["repeated"] += 1
        track.repeat()
        due_ns = now + min(track.timeout_ns << sent.tries, _REPEAT_MAX)
        again = sent._replace(tries=sent.tries + 1, due_ns=due_ns)
        track.sent[sent.hop] = again
        self._put_out(node, track, again)

    def _miss(self, now: int, node: bytes, track: Track[_Sent], sent: _Sent) -> None:
        """Tell that a node is late with a frame; with all, if it acknowledges none of them."""
        frames = [sent]
        if now - track.progress_ns >= track.timeout_ns and node not in self.silent:
            self.silent.add(node)
            frames = track.open
        for one in frames:
            self.late(now, node, one.done)

    def _plan(self, node: bytes, track: Track[_Sent]) -> None:
        """Look after the frames of a node again when the next of them is due; forget an idle one.

        A timer for each frame would end the wait of the loop for each, long after it was
        acknowledged.
        """
        if self.tracks.get(node) is not track:
            return
        if not track.sent:
            assert not track.waiting
            del self.tracks[node]
            self.silent.discard(node)
            return
        due_ns = min(sent.due_ns for sent in track.sent.values())
        if due_ns < track.due_ns:
            track.due_ns = due_ns
            heappush(self._timers, (due_ns, node))


def _count_messages(frame: bytes) -> int:
    """Return how many messages are in a frame; anything else counts as one."""
    request = decode_request(frame[HEADER_BYTES:]) if frame[KIND_OFFSET] == SERVICE else None
    return 1 if request is None else request.messages

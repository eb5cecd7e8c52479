"""What this node publishes, until it is known what came of it.

A message is kept until the manager has taken it; a manager that dies meanwhile costs time, not the
message. A quiet publisher sends each at once. While some are under way, the next wait for each
other, until one of those is acknowledged, a frame is full, or a millisecond has passed; then they
go as a batch, which stays one whatever becomes of it: repeated, passed on, taken by another
manager.

Invariants: the messages under way are bounded by number and bytes, and by the window in which those
who receive them can tell new from old. So are the services and subjects whose numbers are known: of
too many, those go in which nothing was published for longest, unless somebody holds them. One that
is published in again later is counted anew, in an incarnation in which it never was.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from hubbub.limits import (
    BATCH_AT_ONCE,
    BATCH_HOLD,
    BATCH_HOLD_BEHIND,
    BATCH_MESSAGES_MAX,
    BATCH_QUIET,
    BATCH_QUIET_AT_ONCE,
    HOP_TIMEOUT,
    LANES_MAX,
    PUBLISHES_BYTES_MAX,
    PUBLISHES_MAX,
    SECOND,
    SEEN_WINDOW,
)
from hubbub.protocol.rendezvous.asking import Asking
from hubbub.protocol.rendezvous.seat import NEVER, Settled
from hubbub.wire.payloads import LENGTH_BYTES, join
from hubbub.wire.services import (
    ANYCAST,
    BATCH,
    ENVELOPE,
    LEAVING,
    LOOPED,
    NOTHING,
    PASSED,
    PROMPT,
    PUBLISH,
    REFUSED,
    RETAIN,
    TAKEN,
    UNAVAILABLE,
    Answer,
    Extra,
    Message,
    Reply,
    Request,
    encode_extra,
    service_key,
)

RETRY: Final = 2 * HOP_TIMEOUT
RESULT_PATIENCE: Final = 1 * SECOND  # For what becomes of a request that was passed on.
_LIFE_BITS: Final = (1 << 64) - 1
_REQUESTS: Final = 1 << 62  # Requests to any one are counted from here on, apart from messages.
Way = tuple[bytes, str]  # The key of a service, and a subject of it.


class Published(msgspec.Struct):
    """One frame of messages whose end is not known; made in a quarter of a dataclass's time."""

    lane: "Lane"
    sequence: int
    flags: int
    rest: bytes
    extra: Extra
    tail: bytes  # The same, as it is sent.
    count: int
    size_bytes: int
    due_ns: int
    until_ns: int
    is_over: bool = False
    asked: int = 0  # The life of the node that it was sent to last.


@dataclass(slots=True, weakref_slot=True)
class Lane:
    """What this node publishes in one service, on one subject of it."""

    key: bytes
    name: str
    life: int  # The incarnation in which it is counted.
    subject: str = ""
    head: bytes = b""  # What is the same in all its messages,
    extra: Extra = NOTHING  # and behind them,
    tail: bytes = b""  # as it is sent.
    cut_ns: int = 0  # When the last frame was sent.
    last: int = 0  # The number of the last message that was sent,
    last_request: int = _REQUESTS  # and of the last request to any one.
    waiting: list[bytes] = field(default_factory=list)
    waiting_bytes: int = 0
    due_ns: int = NEVER
    under_way: dict[int, Published] = field(default_factory=dict)  # By the first number.
    requests: dict[int, Published] = field(default_factory=dict)
    receivers: int = 0  # As the manager told last.
    target: bytes = b""  # Who is closest to the key,
    target_version: int = -1  # in this version of our view.

    def among(self, sequence: int) -> dict[int, Published]:
        """Return those that a number belongs to."""
        return self.requests if sequence > _REQUESTS else self.under_way

    def list_open(self) -> list[Published]:
        """Return all that was sent and whose end is not known."""
        return [*self.under_way.values(), *self.requests.values()]

    @property
    def due_at_ns(self) -> int:
        """Return when there is something to do for it."""
        times = [min(one.due_ns, one.until_ns) for one in self.list_open()]
        return min([self.due_ns, *times])


class Publishing:
    """The messages of this node, in all services."""

    def __init__(self, asking: Asking, patience_ns: int, batch_bytes: int) -> None:
        self.asking = asking
        self.seat = asking.seat
        self.messages = 0  # Under way, or waiting to be.
        self.size_bytes = 0
        self.due_ns = NEVER
        self._lanes: WeakValueDictionary[Way, Lane] = WeakValueDictionary()
        self._kept: dict[Way, Lane] = {}  # Though nobody may hold them.
        self._life = self.seat.life
        self.open: dict[Way, Lane] = {}  # Those in which anything is not settled.
        self.patience_ns = patience_ns
        self._batch_bytes = batch_bytes

    @property
    def is_settled(self) -> bool:
        """Tell whether nothing is under way."""
        return not self.messages

    def lane(self, name: str, subject: str = "") -> Lane:
        """Return what this node publishes in a service."""
        way = (service_key(name), subject)
        lane = self._lanes.get(way)
        if lane is None:
            extra = Extra(subject=subject) if subject else NOTHING
            head, tail = bytes((PUBLISH,)) + way[0], encode_extra(extra)
            if len(self._kept) >= LANES_MAX:
                self._make_room()
            lane = Lane(way[0], name, self._life, subject, head, extra, tail)
            self._lanes[way] = self._kept[way] = lane
        return lane

    def _make_room(self) -> None:
        """Let go of half of those lanes in which nothing is under way, the longest idle first."""
        idle = [one for one in list(self._kept.items()) if one[0] not in self.open]
        idle = sorted((one for one in idle if not one[1].waiting), key=lambda one: one[1].cut_ns)
        for way, _ in idle[: (len(idle) + 1) // 2]:
            self._kept.pop(way, None)
        # Even steps: the lowest bit tells requests from messages.
        self._life = self._life + 2 & _LIFE_BITS

    def has_room_in(self, lane: Lane) -> bool:
        """Tell whether one more message of a service may be under way."""
        first = next(iter(lane.under_way), lane.last)
        has_room = self.messages < PUBLISHES_MAX and self.size_bytes < PUBLISHES_BYTES_MAX
        return has_room and lane.last + len(lane.waiting) - first < SEEN_WINDOW // 2

    def add(self, lane: Lane, payload: bytes) -> bool:
        """Put a message to those that wait already; False: it is to be published by itself."""
        count, size_bytes = len(lane.waiting), len(payload) + LENGTH_BYTES
        if not 0 < count < BATCH_MESSAGES_MAX - 1 or not self.has_room_in(lane):
            return False
        if lane.waiting_bytes + size_bytes > self._batch_bytes:
            return False
        self._wait(lane, payload)
        return True

    def _wait(self, lane: Lane, payload: bytes) -> None:
        lane.waiting.append(payload)
        lane.waiting_bytes += len(payload) + LENGTH_BYTES
        self.messages += 1
        self.size_bytes += len(payload)

    def publish(
        self, now: int, lane: Lane, payload: bytes, *, flags: int = 0, credentials: bytes = b"",
        is_urgent: bool = False, patience_ns: int = 0,
    ) -> int:  # fmt: skip
        """Publish a message, for which there is room; return its number.

        One that goes alone may be given up sooner or later than others: a request, for instance,
        when nobody waits for the reply any more.
        """
        if flags or credentials or is_urgent:
            flags |= PROMPT if is_urgent else 0
            until_ns = now + (patience_ns or self.patience_ns)
            return self._publish_alone(now, lane, payload, flags, credentials, until_ns)
        if not lane.waiting and self._may_go(now, lane):
            self.messages += 1
            self.size_bytes += len(payload)
            self._send(now, lane, payload, 0, 1, len(payload))
            return lane.last
        if lane.waiting_bytes + len(payload) + LENGTH_BYTES > self._batch_bytes:
            self._cut(now, lane)
        self._wait(lane, payload)
        number = lane.last + len(lane.waiting)
        is_full = lane.waiting_bytes >= self._batch_bytes or len(lane.waiting) >= BATCH_MESSAGES_MAX
        if is_full or self._may_go(now, lane):
            self._cut(now, lane)
        elif lane.due_ns == NEVER:
            is_behind = len(lane.under_way) >= BATCH_QUIET_AT_ONCE
            lane.due_ns = self._plan(now + (BATCH_HOLD_BEHIND if is_behind else BATCH_HOLD))
        return number

    def _publish_alone(
        self, now: int, lane: Lane, payload: bytes, flags: int, credentials: bytes, until_ns: int
    ) -> int:
        """Publish what cannot share a frame with others; those that wait go first."""
        self._cut(now, lane)
        self.messages += 1
        self.size_bytes += len(payload)
        if flags & ANYCAST:
            lane.last_request += 1
            number = lane.last_request
        else:
            lane.last += 1
            number = lane.last
        name = lane.name if flags & RETAIN else ""
        extra = Extra(name=name, credentials=credentials, subject=lane.subject)
        extra = NOTHING if extra == NOTHING else extra
        tail = encode_extra(extra)
        self._begin(
            now,
            Published(lane, number, flags, payload, extra, tail, 1, len(payload), now, until_ns),
        )
        return number

    def _may_go(self, now: int, lane: Lane) -> bool:
        """Tell whether a message need not wait for others: few are under way, or it is quiet."""
        under_way = len(lane.under_way)
        is_quiet = now - lane.cut_ns >= BATCH_QUIET and under_way < BATCH_QUIET_AT_ONCE
        return is_quiet or under_way < BATCH_AT_ONCE

    def _cut(self, now: int, lane: Lane) -> None:
        """Send those that wait, in one frame."""
        waiting, lane.waiting = lane.waiting, []
        lane.waiting_bytes, lane.due_ns = 0, NEVER
        if not waiting:
            return
        count, size_bytes = len(waiting), sum(map(len, waiting))
        rest = join(waiting) if count > 1 else waiting[0]
        self._send(now, lane, rest, BATCH if count > 1 else 0, count, size_bytes)

    def _send(
        self, now: int, lane: Lane, rest: bytes, flags: int, count: int, size_bytes: int
    ) -> None:
        first, until_ns = lane.last + 1, now + self.patience_ns
        lane.last += count
        lane.cut_ns = now
        published = Published(
            lane, first, flags, rest, lane.extra, lane.tail, count, size_bytes, now, until_ns
        )
        self._begin(now, published)

    def _begin(self, now: int, published: Published) -> None:
        lane, sequence = published.lane, published.sequence
        lane.among(sequence)[sequence] = published
        self.open[lane.key, lane.subject] = lane
        self._try(now, published)

    def _try(self, now: int, published: Published) -> None:
        """Send messages to the manager."""
        asking = self.asking
        if now < asking.ready_ns and not asking.is_ready(now):
            published.due_ns = self._plan(asking.ready_ns)
            return
        published.due_ns = NEVER  # Until it is acknowledged, or given up.
        self._plan(published.until_ns)
        target = asking.target(now, published.lane.key)
        published.asked = self._life_of(target)
        if target == self.seat.node:
            self.tried(published, now, target, asking.take(now, self._request_of(published)))
            return
        done = partial(self.tried, published)
        if self.seat.is_first_version:
            asking.post.send(now, target, self._request_of(published), done)
        else:
            asking.post.send_made(now, target, partial(self._encode, published), done)

    def _life_of(self, node: bytes) -> int:
        """Return what tells a node from all others, and from itself after a restart."""
        member = self.asking.view.members.get(node)
        return self.seat.life if member is None else member.life

    def _request_of(self, published: Published) -> Request:
        message = Message(PUBLISH, published.lane.key, published.rest)
        sequence, flags = published.sequence, published.flags
        request = self.asking.make(message, sequence, flags, 0, published.extra)
        return request._replace(incarnation=published.lane.life)

    def _encode(self, published: Published, hop: int) -> bytes:
        """Make the body of a frame, as `encode_request` would of a request made for it."""
        seat, tail = self.seat, published.tail
        flags = published.flags | (LEAVING if seat.is_leaving else 0)
        envelope = ENVELOPE.pack(
            hop, flags, 0, seat.node, published.lane.life, published.sequence, 0, 0, 0, len(tail)
        )
        return envelope + published.lane.head + published.rest + tail

    def _find(self, way: Way, sequence: int) -> Published | None:
        lane = self.open.get(way)
        return None if lane is None else lane.among(sequence).get(sequence)

    def tried(self, published: Published, now: int, _: bytes, answer: Answer | None) -> None:
        """Hear what the next node says to messages."""
        if published.is_over:
            return
        if answer is None:
            self.asking.forget_hint(published.lane.key)
            published.due_ns = self._plan(now + RETRY)
        elif answer.status == PASSED:
            self.asking.hint(now, published.lane.key, answer.manager)
            published.due_ns = self._plan(now + RESULT_PATIENCE)
        else:
            self._settle(now, published, answer)

    def settle(self, now: int, way: Way, sequence: int, answer: Answer) -> None:
        """Hear from the manager what became of messages."""
        published = self._find(way, sequence)
        if published is not None:
            self._settle(now, published, answer)

    def _settle(self, now: int, published: Published, answer: Answer) -> None:
        is_asking = published.flags & ANYCAST
        if answer.status == TAKEN and is_asking:
            published.due_ns = self._plan(published.until_ns)  # The reply is the end of it.
        elif answer.status in (TAKEN, UNAVAILABLE, REFUSED):
            self._finish(now, published, answer.status, answer.number)
        else:
            if answer.status == LOOPED:
                self.asking.forget_hint(published.lane.key)
            published.due_ns = self._plan(now + RETRY)

    def _finish(
        self, now: int, published: Published, status: int, number: int,
        payload: bytes | None = None,
    ) -> None:  # fmt: skip
        """Let go of messages, and let those go that waited for them."""
        lane, sequence = published.lane, published.sequence
        key, subject = lane.key, lane.subject
        published.is_over = True
        del lane.among(sequence)[sequence]
        self.messages -= published.count
        self.size_bytes -= published.size_bytes
        if status in (TAKEN, UNAVAILABLE):
            lane.receivers = number
        settled = Settled(key, sequence, status, number, payload, published.count, subject)
        self.seat.settled.append(settled)
        if lane.waiting and self._may_go(now, lane):
            self._cut(now, lane)
        if not lane.under_way and not lane.requests:
            self.open.pop((key, subject), None)

    def take_reply(self, now: int, reply: Reply) -> None:
        """Take the answer of the member that a request came to."""
        published = self._find((reply.key, ""), reply.sequence)
        if published is not None:
            self._finish(now, published, TAKEN, 1, reply.payload)

    def members_changed(self, now: int) -> None:
        """Look again where messages go.

        What waits for an answer of the right node goes on waiting. To send all of it anew whenever
        anybody comes or goes would multiply it just when a manager has died.
        """
        for lane in self.open.values():
            asked = self._life_of(self.asking.target(now, lane.key))
            for published in lane.list_open():
                if published.asked != asked:
                    published.due_ns = self._plan(min(published.due_ns, now + RETRY))

    # Time.

    def _plan(self, due_ns: int) -> int:
        self.due_ns = min(self.due_ns, due_ns)
        return due_ns

    def advance(self, now: int) -> None:
        """Send what has waited long enough, and ask again what was not answered."""
        if now < self.due_ns:
            return
        for lane in list(self.open.values()):
            if lane.due_ns <= now:
                self._cut(now, lane)
            for published in lane.list_open():
                if published.until_ns <= now:
                    self._finish(now, published, PASSED, 0)  # Nobody said what became of it.
                elif published.due_ns <= now:
                    self._try(now, published)
        self.due_ns = min((lane.due_at_ns for lane in self.open.values()), default=NEVER)

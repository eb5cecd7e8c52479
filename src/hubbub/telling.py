"""Tells others what only this node knows: what it dropped and lost, and which slots it met.

A recorder hears the events of its own node, and what everybody else says. So each node says, once a
second, if there is anything to say and somebody listens, in one message on `/hubbub/events/ID`.
Nothing that befell messages below `/hubbub/` is told: messages about such messages would never end
(decision 38). What has no room is counted, so that the sums are right.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from hubbub.consumer import Consumer, ConsumerStatistics
from hubbub.errors import ClosedError, HubbubError
from hubbub.events import Event, GapAbandoned, SlowConsumer
from hubbub.limits import MS, TOLD_CONSUMERS_MAX, TOLD_EACH, TOLD_EVENTS_MAX
from hubbub.runtime.tally import Loss, Range, Tally
from hubbub.subjects import OWN_SUBJECTS, matches

if TYPE_CHECKING:
    from hubbub.node import Node
    from hubbub.publisher import Publisher

SUBJECTS: Final = "/hubbub/events/*"
_NOTHING: Final = Loss(0, ())
_COUNTED: Final = ("served", "missed", "late", "vacant")


class Slots(Struct, frozen=True, omit_defaults=True):
    """What became of the slots of a consumer since that was last told."""

    subject: str
    port: int
    period_ns: int
    served: int = 0
    missed: int = 0  # Also those
    late: int = 0  # whose sample came when they had been given up.
    vacant: int = 0


class Told(Struct, frozen=True, omit_defaults=True):
    """One message of a node about itself."""

    time_ns: int
    slow: tuple[SlowConsumer, ...] = ()
    lost: int = 0
    lost_ranges: tuple[Range, ...] = ()
    slots: tuple[Slots, ...] = ()


encode: Final = msgspec.json.Encoder().encode
decode: Final = msgspec.json.Decoder(Told).decode


class Telling:
    """What one node tells of itself."""

    def __init__(self, node: "Node") -> None:
        self.is_on = True
        self._node = node
        self._subject = f"{OWN_SUBJECTS}events/{node.id.hex()}"
        self._lane = node._pool.lane(self._tell_in_turn)
        self._slow: deque[SlowConsumer] = deque()
        self._lost = Tally()
        self._counted: dict[Consumer, ConsumerStatistics] = {}  # As far as they were told.
        self._ended: deque[Slots] = deque(maxlen=TOLD_CONSUMERS_MAX)
        self._publisher: Publisher | None = None
        self._listeners: list[Callable[[Told], object]] = []
        self._is_due = False
        self._telling = Lock()

    def listen(self, listener: Callable[[Told], object]) -> Callable[[], None]:
        """Let somebody of this node hear what it tells; returns what tells a last time."""
        self._listeners.append(listener)

        def end() -> None:
            if self.is_on:
                self._tell()
            self._listeners.remove(listener)

        return end

    def note(self, event: Event) -> None:
        """Keep an event, if it is to be told; in any thread."""
        if not self.is_on:
            return
        if isinstance(event, SlowConsumer):
            self._note_slow(event)
        elif isinstance(event, GapAbandoned) and event.subject and _is_theirs(event.subject):
            count = event.last - event.first + 1
            self._lost.add(event.subject, event.publisher, event.first, count)
            self._tell_later()

    def _note_slow(self, event: SlowConsumer) -> None:
        ranges = tuple(one for one in event.ranges if _is_theirs(one[0]))
        dropped = event.dropped - _count(event.ranges) + _count(ranges)
        if event.peer is None and not dropped:
            return
        if len(self._slow) >= TOLD_EVENTS_MAX:  # Its subscription has no room, its sum has.
            last = self._slow.pop()
            event, ranges = SlowConsumer(event.channel, "many", last.dropped), ()
            dropped += last.dropped
        self._slow.append(msgspec.structs.replace(event, dropped=dropped, ranges=ranges))
        self._tell_later()

    def begin_counting(self) -> None:
        """Look at the slots of consumers from now on: there is one."""
        if self.is_on:
            self._tell_later()

    def end_counting(self, consumer: Consumer) -> None:
        """Look at the slots of a consumer for the last time."""
        with self._telling:
            before = self._counted.pop(consumer, None)
        if self.is_on and (slots := _since(before, consumer.statistics())):
            self._ended.append(slots)
            self._tell_later()

    def finish(self) -> None:
        """Tell what is left: the node closes."""
        if not self.is_on:
            return
        for subscription in self._node._host.subscriptions:
            subscription._report()
        self._tell()
        self.is_on = False

    def _tell_later(self) -> None:
        """Tell all that comes within a second together."""
        if self._is_due:
            return
        self._is_due = True
        try:
            self._node._call_at(monotonic_ns() + TOLD_EACH, self._lane.notify)
        except ClosedError:
            self._is_due = False  # On no channel; it may join another, and tell then.

    def _tell_in_turn(self) -> bool:
        """Tell, on a delivery thread; as long as there are consumers there will be more."""
        self._is_due = False
        self._tell()
        if self._counted and self.is_on:
            self._tell_later()
        return False

    def _tell(self) -> None:
        """Tell what there is; what nobody hears is not told later either."""
        with self._telling:
            slow = tuple(self._slow.popleft() for _ in range(len(self._slow)))
            lost = self._lost.take() or _NOTHING
            told = Told(time_ns(), slow, *lost, self._take_slots())
            if not (slow or lost.messages or told.slots):
                return
            for listener in list(self._listeners):
                listener(told)
            with suppress(HubbubError):  # No room, or no channel: the counters know.
                if self._is_heard():
                    self._publish(told)

    def _take_slots(self) -> tuple[Slots, ...]:
        consumers = [one for one in list(self._node._components) if isinstance(one, Consumer)]
        now = {one: one.statistics() for one in consumers[:TOLD_CONSUMERS_MAX] if one.period_ms}
        found = [_since(self._counted.get(one), statistics) for one, statistics in now.items()]
        self._counted = now
        ended = [self._ended.popleft() for _ in range(len(self._ended))]
        return tuple(filter(None, (*ended, *found)))

    def _is_heard(self) -> bool:
        """Tell whether another node wants to hear; only then there is a topic for it."""
        return any(
            matches(pattern, self._subject)
            for peer in self._node.peers()
            for pattern in peer.patterns
        )

    def _publish(self, told: Told) -> None:
        if self._publisher is None:
            self._publisher = self._node.publisher(self._subject)
        self._publisher.publish(encode(told))


def _is_theirs(subject: str) -> bool:
    """Tell whether a subject is that of an application, not Hubbub's own."""
    return not subject.startswith(OWN_SUBJECTS)


def _count(ranges: tuple[Range, ...]) -> int:
    return sum(last - first + 1 for *_, first, last in ranges)


def _since(before: ConsumerStatistics | None, now: ConsumerStatistics) -> Slots | None:
    """Say what became of slots since somebody looked; None: nothing did, or it has no slots."""
    if not now.period_ms:
        return None
    counts = {name: getattr(now, name) - getattr(before, name, 0) for name in _COUNTED}
    period_ns = round(now.period_ms * MS)
    return Slots(now.subject, now.port, period_ns, **counts) if any(counts.values()) else None

"""HOT. One incoming stream: which of its frames came, and what they hold, in order.

Invariants: `next` is the first frame never seen or heard of; every frame before it came, is in
`requester.missing`, or is settled (abandoned, skipped). A frame is marked as seen before anybody
asks whether it is for us, and only if it could be decoded. Runs of topics whose number nobody has
named yet are held while a grant is under way, because the grant may say that they were owed, and
while an earlier frame is missing, because that may have named them.

A peer may go on by another stream of the same class (decision 0027). The two have the same topics,
so that nothing is handed out twice, and each topic has one stream that decides what of it is lost.
A stream that continues another hands out what is next, and holds what is early until the other is
settled up to a stated frame: then what is missing cannot come by that one, and the topics follow.
"""

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, Final

from hubbub.limits import (
    CACHE_BYTES_MAX,
    FRAME_COST_BYTES,
    HELD_BYTES_MAX,
    MISSING_FRAMES_MAX,
    SEQUENCE_MAX,
    TOPICS_MAX,
)
from hubbub.message import Source
from hubbub.protocol.delivery import Delivery
from hubbub.protocol.gateway.relayed import Places, RelayedTopic
from hubbub.protocol.joins import Joins, ask_nothing
from hubbub.protocol.reassembly import Reassembly, Share, count_behind
from hubbub.protocol.repair import Requester
from hubbub.protocol.topics import Hole, IncomingTopic, Way
from hubbub.subjects import is_subject
from hubbub.wire import batch, train
from hubbub.wire.batch import SEGMENT_HEAD_BYTES
from hubbub.wire.control import Lost, Range, Topic, decode_declarations
from hubbub.wire.header import DECLARES, HEADER_BYTES, KEY_BYTES, REFERS
from hubbub.wire.wishes import ALL_RELIABLES, BY_DATAGRAM, LINKS_OF, decode_links, name_by

_UNCOMMON: Final = DECLARES | REFERS

Held = tuple[int, int, list[bytes], Sequence[int]]


def _held_bytes(runs: list[Held]) -> int:
    return sum(sum(map(len, run[2])) + FRAME_COST_BYTES for run in runs)


def resolve_nothing(*_: object) -> None:
    """Make nothing of references: no payloads are shared here."""


class Receiver:
    """The receiving end of one stream of one peer."""

    def __init__(
        self,
        stream: int,
        source: Source,
        from_frame: int,
        random: Random,
        tolerance_ns: int,
        share: Share,
        is_wanted: Callable[[str], bool],
        resolve: Callable[[list[bytes]], list[Any] | None] = resolve_nothing,
        asks: Callable[[str], Iterable[int]] = ask_nothing,
        places: Places | None = None,
        twin: "Receiver | None" = None,
        *,
        knows_wishes: bool = True,
    ) -> None:
        self.stream = stream
        self.source = source
        self.is_reliable = stream in ALL_RELIABLES
        self.may_come_by_datagram = stream in BY_DATAGRAM
        self.way = Way()
        self.from_frame = from_frame
        self.next = from_frame
        self.requester = Requester(random, tolerance_ns)
        self.topics: dict[int, IncomingTopic] = {} if twin is None else twin.topics
        # The stream that this one continues, before which of its frames, and with which topics.
        self.continues: Receiver | None = None
        self.until = 0  # Not known yet.
        self.following: set[int] = set()
        self.successor: Receiver | None = None  # The stream that continues this one.
        self.reassembly = Reassembly(share)
        self.is_wanted = is_wanted  # Asked by name (wire/wishes.py).
        self.knows_wishes = knows_wishes
        self.places = Places(lambda _: False) if places is None else places
        self.resolve = resolve  # Makes payloads of references; None: what they name is not here.
        self.is_awaiting_grant = False  # A newer interest of ours has not been answered yet.
        self.declared_firsts: dict[int, int] = {}  # By frames that came meanwhile.
        self.held: dict[int, list[Held]] = {}
        self.held_bytes = 0
        self.held_base = from_frame  # The first missing frame when we last looked at what is held.
        # How far we were before the peer was forgotten.
        self.positions: dict[str, int] = {} if twin is None else twin.positions
        # A frame lost for good may have named topics: only a new grant can name them now.
        self.has_lost_names = False
        self.unnamed_lost: list[tuple[batch.Run, str]] = []
        self.holes: list[Hole] = [] if twin is None else twin.holes
        self.joins: Joins = (
            Joins(self.topics, self.holes, self.way, asks) if twin is None else twin.joins
        )
        # Topics that have not shown yet what they lost, and why; the frames that were passed over.
        self.behind: dict[int, str] = {}
        self.passed_over: tuple[int, int] | None = None
        self.blind_holes: list[
            tuple[int, int, str]
        ] = []  # Frames lost without anybody knowing what was in them.
        self.fresh_bytes = 0  # Received since the last STATUS, as the socket buffer counts.
        self.status_ns: int | None = None  # When to send a STATUS.
        self.status_bytes = 0  # So much news earns one at once.
        self.echo_us = 0  # The sender's clock in its last frame, and when that came.
        self.echo_ns = 0
        self.duplicates = 0
        self.repaired = 0
        self.ahead_bytes = 0  # Received behind the first missing frame, roughly: what waits for it.
        self.ahead_base = from_frame
        self.is_mended = False  # The last missing frame has just come: see `close_holes`.
        self.malformed = 0
        self.deferred = 0
        self.refusal = ""  # Why the last frame that was not taken was not.
        self.resyncs = 0

    @property
    def base(self) -> int:
        """Return the first frame that is neither here nor settled."""
        for sequence in self.requester.missing:
            return sequence
        return self.next

    def accept_data(
        self, now: int, sequence: int, flags: int, buffer: bytes, start: int, end: int,
        received_ns: int, out: list[Delivery],
    ) -> bool:  # fmt: skip
        """Take a DATA frame (body in `buffer[start:end]`); False if it was not new or not sound."""
        if sequence == self.next and self._is_calm() and not flags & _UNCOMMON:
            return self._accept_next(sequence, buffer, start, end, received_ns, out)
        if not self._is_new(sequence) or self._is_full(sequence):
            return False
        body = batch.decode(buffer, start, end)
        if body is None or (flags & DECLARES and not self._declare(body.declarations)):
            return self._refuse_malformed()
        runs, payloads, published_ns, _ = body
        if flags & REFERS:
            found = self.resolve(payloads)
            if found is None:
                self.refusal = "unresolved"
                return False
            payloads = found
        self._mark(now, sequence, end - start)
        if self.joins.ready:
            self.joins.sweep(received_ns, out)
        if self.held and (flags & DECLARES or self.held_base != self.base):
            self.release_named(received_ns, out)
        self._accept_runs(sequence, runs, payloads, published_ns, received_ns, out)
        return True

    def _accept_next(
        self, sequence: int, buffer: bytes, start: int, end: int,
        received_ns: int, out: list[Delivery],
    ) -> bool:  # fmt: skip
        """Take the very frame that comes next, with nothing missing: the way of nearly all."""
        body = batch.decode(buffer, start, end)
        if body is None:
            return self._refuse_malformed()
        self.next = sequence + 1
        self.fresh_bytes += end - start + FRAME_COST_BYTES
        runs, payloads, published_ns, _ = body
        if len(runs) == 1:
            number, first, _ = runs[0]
            topic = self.topics.get(number)
            if topic is not None and topic.is_wanted and topic.is_next(first):
                topic.expected = first + len(payloads)
                link = self.way.link
                out.append(Delivery(topic, first, payloads, published_ns, received_ns, link))
                return True
        self._accept_runs(sequence, runs, payloads, published_ns, received_ns, out)
        return True

    def _accept_runs(
        self, sequence: int, runs: list[batch.Run], payloads: list[bytes],
        published_ns: Sequence[int], received_ns: int, out: list[Delivery],
    ) -> None:  # fmt: skip
        if len(runs) == 1:
            number, first, _ = runs[0]
            self._accept_run(sequence, number, first, payloads, published_ns, received_ns, out)
            self._settle_topic(sequence, number, received_ns, out)
            return
        at = 0
        for number, first, count in runs:
            stop = at + count
            self._accept_run(
                sequence, number, first, payloads[at:stop], published_ns[at:stop], received_ns, out
            )
            at = stop
        # Only now: a frame may hold two runs of one topic, and the second is not missing.
        for number, _, _ in runs:
            self._settle_topic(sequence, number, received_ns, out)

    def accept_segment(
        self, now: int, sequence: int, buffer: bytes, start: int, end: int,
        received_ns: int, out: list[Delivery],
    ) -> bool:  # fmt: skip
        """Take a SEGMENT frame; False if it was not new or not sound."""
        if not self._is_new(sequence) or self._is_full(sequence):
            return False
        segment = batch.decode_segment(buffer, start, end)
        if segment is None:
            return self._refuse_malformed()
        topic = self.topics.get(segment.topic)
        if (
            self._is_past(topic, segment.sequence)
            if topic is not None
            else not self._may_be_named(sequence)
        ):
            self._mark(now, sequence, end - start)
            if topic is not None and not topic.is_wanted:
                topic.pass_by(segment.sequence + 1)
            return True
        if not self.is_reliable:
            self.reassembly.drop_older(segment.topic, segment.sequence)
        if not self.reassembly.has_room(segment):
            # As if it had been lost: it is repaired when other messages are complete.
            self.requester.deferred(now, sequence)
            return self._defer()
        self._mark(now, sequence, end - start)
        refused = self.reassembly.refused
        message = self.reassembly.add(sequence, segment)
        if message is not None:
            self._accept_run(
                sequence, segment.topic, segment.sequence, [message], [segment.published_ns],
                received_ns, out,
            )  # fmt: skip
            self._settle_topic(sequence, segment.topic, received_ns, out)
        elif self.reassembly.refused > refused and topic is not None:
            topic.lose(segment.sequence, 1, "no_memory", received_ns, out)
        return True

    def accept_train(self, prefix: bytes, buffer: bytes, start: int, step: int) -> int:
        """Take the pieces of a large message from the frame at `start` on; return how many.

        Only the very next ones are taken, and only if their headers begin with these bytes, of
        which the caller knows what they mean. The piece that completes the message is never one of
        them.
        """
        first = train.read_piece(buffer, start)
        if self.next != first.frame or not self._is_calm():
            return 0
        partial = self.reassembly.partials.get((first.topic, first.message))
        begun = self._begin_train(first, buffer, start, step) if partial is None else None
        if partial is not None:
            room = partial.room_from(first, step - HEADER_BYTES - SEGMENT_HEAD_BYTES)
        else:
            room = 0 if begun is None else count_behind(begun)
        count = min((len(buffer) - start) // step, room)
        pieces = train.take(prefix, buffer, start, first, count) if count else ()
        count = len(pieces)
        if not count:
            return 0
        if partial is None:
            assert begun is not None
            partial = self.reassembly.begin(begun)
        self.next += count
        partial.add_train(first.offset, pieces, self.next - 1)
        self.fresh_bytes += count * (step - HEADER_BYTES + FRAME_COST_BYTES)
        return count

    def _begin_train(
        self, first: train.Piece, buffer: bytes, start: int, step: int
    ) -> batch.Segment | None:
        """Return the piece at `start` if a large message may begin with it; it is not checked yet.

        What is not plain goes the ordinary way, which took 8 us more of each message.
        """
        topic = self.topics.get(first.topic)
        if topic is None or not self.is_reliable or self._is_past(topic, first.message):
            return None
        segment = batch.decode_segment(buffer, start + HEADER_BYTES, start + step)
        if segment is None or not self.reassembly.may_begin(segment):
            return None
        return segment

    def pass_by(
        self, now: int, sequence: int, size_bytes: int, received_ns: int, out: list[Delivery]
    ) -> None:
        """Mark a frame as seen that holds nothing for us, without looking into it."""
        if not self._is_new(sequence):
            return
        self._mark(now, sequence, size_bytes)
        if self.held and self.held_base != self.base:
            self.release_named(received_ns, out)

    @staticmethod
    def _is_past(topic: IncomingTopic, sequence: int) -> bool:
        return not topic.is_wanted or (topic.expected is not None and sequence < topic.expected)

    def _is_calm(self) -> bool:
        return not (self.requester.missing or self.held or self.behind)

    def _is_new(self, sequence: int) -> bool:
        if sequence >= self.next or sequence in self.requester.missing:
            return True
        self.duplicates += 1
        self.refusal = "duplicate"
        return False

    def _is_full(self, sequence: int) -> bool:
        # A frame refused here counts as lost, so it is repaired once the grant has come. The frame
        # that others wait for is never refused.
        if self.held_bytes <= HELD_BYTES_MAX:
            return False
        if sequence == self.base and not self.is_awaiting_grant and self.continues is None:
            return False
        return not self._defer()

    def _defer(self) -> bool:
        self.deferred += 1
        self.refusal = "deferred"
        return False

    def _refuse_malformed(self) -> bool:
        self.malformed += 1
        self.refusal = "malformed"
        return False

    def _mark(self, now: int, sequence: int, size_bytes: int) -> None:
        self.fresh_bytes += size_bytes + FRAME_COST_BYTES
        if self.requester.missing:
            self.ahead_bytes += size_bytes
        if sequence == self.next:
            self.next = sequence + 1
        elif sequence > self.next:
            self.extend(now, sequence)
            self.next = sequence + 1
        elif sequence in self.requester.missing:
            self.requester.repaired(now, sequence)
            self.repaired += 1
            self.is_mended = not self.requester.missing

    def extend(self, now: int, next_sequence: int) -> None:
        """Learn that frames up to `next_sequence` were sent; those not here are missing."""
        if next_sequence <= self.next:
            return
        first, self.next = self.next, next_sequence
        if not self.is_reliable:
            return
        if next_sequence - first + len(self.requester.missing) > MISSING_FRAMES_MAX:
            # More than any window: a forged or absurd jump must not cost memory.
            self.resyncs += 1
            self.has_lost_names = self.has_lost_names or bool(self.joins.replays)
            self._pass_over(first, next_sequence - 1, "resync")
        else:
            self.requester.miss(now, first, next_sequence)

    def _pass_over(self, first: int, last: int, reason: str) -> None:
        """Go on behind frames of unknown content; the next message of a topic names its hole."""
        behind = [t.number for t in self.own_topics() if t.is_wanted and t.expected is not None]
        if behind:
            if self.behind and self.passed_over is not None:
                first = self.passed_over[0]  # What was passed over before is not all named yet.
            self.behind |= dict.fromkeys(behind, reason)
            self.passed_over = first, last
        else:
            self.blind_holes.append((first, last, reason))

    def _accept_run(
        self, frame: int, number: int, first: int, payloads: list[bytes],
        published_ns: Sequence[int], received_ns: int, out: list[Delivery],
    ) -> None:  # fmt: skip
        topic = self.topics.get(number)
        if topic is not None and not topic.is_wanted:
            topic.pass_by(first + len(payloads))
            return
        if topic is None or topic.expected is None:
            if self._may_be_named(frame):
                self._hold(frame, number, first, payloads, published_ns)
            return
        if topic.stream == self.stream or first <= topic.expected:
            topic.accept(frame, first, payloads, published_ns, received_ns, out)
        elif self.continues is not None:
            self._hold(frame, number, first, payloads, published_ns)

    def own_topics(self) -> list[IncomingTopic]:
        """Return the topics of which this stream decides what is lost."""
        return [topic for topic in self.topics.values() if topic.stream == self.stream]

    def _settle_topic(self, frame: int, number: int, received_ns: int, out: list[Delivery]) -> None:
        topic = self.topics.get(number)
        if topic is None or topic.stream != self.stream:
            return
        if topic.waiting and frame < self.base:
            # Every earlier frame is settled, and still something is missing before this run.
            reason = self.behind.get(number, "not_available")
            topic.settle(self.base, reason, received_ns, out)
        if self.behind:
            self.behind.pop(number, None)

    def _may_be_named(self, frame: int) -> bool:
        """Tell whether the name of an unknown topic in this frame may still come."""
        return self.is_awaiting_grant or self.base < frame

    def _hold(
        self,
        frame: int,
        number: int,
        first: int,
        payloads: list[bytes],
        published_ns: Sequence[int],
    ) -> None:
        run = frame, first, payloads, published_ns
        self.held_bytes += _held_bytes([run])
        self.held.setdefault(number, []).append(run)

    def _declare(self, declarations: bytes) -> bool:
        topics = decode_declarations(declarations)
        if topics is None:
            return False
        for topic in topics:
            if self._may_have_history(topic):
                self._lose_names()
            self.declare(topic, is_owed=not self.is_awaiting_grant)
            if self.is_awaiting_grant and topic.number in self.topics:
                # We may not have been counted in yet: only the grant can say from where on.
                self.declared_firsts[topic.number] = topic.first
        return True

    def _may_have_history(self, declared: Topic) -> bool:
        """Tell whether a topic that a frame names was there before, and its history is asked for.

        A link has just brought it then, and the grant that tells is on its way, or was lost.
        """
        is_known = self.is_awaiting_grant or declared.number in self.topics
        if is_known or self.stream not in LINKS_OF or declared.first <= 1:
            return False
        name = name_by(declared.subject, decode_links(declared.links))
        return self.is_wanted(name) and bool([*self.joins.asks(name)])

    def declare(self, declared: Topic, *, is_owed: bool = True, is_granted: bool = False) -> None:
        """Learn a topic's name and where it starts for us; what cannot be a topic is left out.

        One that a frame names begins there, unless we have begun: then it was for others. A grant
        may name one that was there before, which no link led to us, so it is the grant that says
        whether history comes.
        """
        topic = known = self.topics.get(declared.number)
        if topic is None or topic.subject != declared.subject:
            is_sound = is_subject(declared.subject) and (
                not declared.hops or len(declared.origin) == KEY_BYTES
            )
            if len(self.topics) >= TOPICS_MAX or not is_sound:
                self.malformed += 1
                return
            if declared.hops and self.places.is_here(declared.origin):
                return  # It has gone in a circle: who it is of is heard without a gateway.
            topic = self.topics[declared.number] = self._make_topic(declared)
            topic.schema_name, topic.schema_hash = declared.schema_name, declared.schema_hash
            topic.replayed_ns = declared.replayed_ns
            if topic.is_wanted:
                if not declared.hops:
                    topic.expected = self.positions.pop(topic.name, None)
                is_back = topic.expected is not None
                is_new = not (is_granted or self.is_awaiting_grant)
                self.joins.meet(topic, is_new=is_new, is_back=is_back)
        has_begun = topic is known and topic.expected is not None
        if topic.is_wanted and is_owed and (is_granted or not has_begun):
            topic.start(declared.first)

    def _make_topic(self, declared: Topic) -> IncomingTopic:
        wish = decode_links(declared.links)
        name = name_by(declared.subject, wish)
        is_wanted = self.is_wanted(name)
        stream = self._place(declared.number)
        if declared.hops:
            place = self.places.find(declared.origin, name)
            topic: IncomingTopic = RelayedTopic(
                declared, place, self.holes, self.way,
                is_reliable=self.is_reliable, is_wanted=is_wanted, stream=stream,
            )  # fmt: skip
        else:
            topic = IncomingTopic(
                declared.number, declared.subject, self.source, self.holes, self.way,
                is_reliable=self.is_reliable, is_wanted=is_wanted, stream=stream,
            )  # fmt: skip
        topic.wish, topic.name = wish if self.knows_wishes else None, name
        return topic

    def _place(self, number: int) -> int:
        """Return which stream decides what of a new topic is lost.

        It comes by both while one continues the other, and goes on by the new one.
        """
        if self.continues is not None:
            self.following.add(number)
            return self.continues.stream
        if self.successor is None:
            return self.stream
        if self.successor.continues is None:
            return self.successor.stream
        self.successor.following.add(number)
        return self.stream

    def carry(self, number: int) -> None:
        """Take in that a topic comes by this stream now."""
        topic = self.topics.get(number)
        if topic is not None and topic.stream != self.stream and self.continues is not None:
            self.following.add(number)

    def follow(self, old: "Receiver", until: int) -> None:
        """Continue another stream, which carried our topics before its frame `until` (0: ?)."""
        self.continues, self.until = old, until
        old.successor = self

    def may_take_over(self) -> bool:
        """Tell whether all is settled that could come only by the stream that we continue."""
        old = self.continues
        return old is not None and 0 < self.until <= old.base

    def take_over(self, received_ns: int, out: list[Delivery]) -> None:
        """Decide from now on what is lost of the topics that go on by this stream."""
        old, self.continues = self.continues, None
        assert old is not None
        for number in self.following:
            topic = self.topics.get(number)
            if topic is not None and topic.stream == old.stream:
                topic.follow(self.stream, self.way, self.until, received_ns, out)
        self.following.clear()
        if self.is_awaiting_grant:
            self._settle_frames([], "not_available", received_ns, out)
        else:
            self.release_held(received_ns, out)

    def hand_over(self, heir: "Receiver", received_ns: int, out: list[Delivery]) -> None:
        """End: nothing more is owed by this stream, and what is goes by the other one."""
        if self.continues is heir:
            heir.successor = None
        if heir.continues is self:
            heir.continues = None
        for topic in self.own_topics():
            topic.follow(heir.stream, heir.way, SEQUENCE_MAX, received_ns, out)
        self.reassembly.clear()
        if heir.is_reliable:
            heir.release_named(received_ns, out)

    def grant(self, from_frame: int) -> None:
        """Accept that nothing before `from_frame` is owed."""
        missing = self.requester.missing
        for sequence in [sequence for sequence in missing if sequence < from_frame]:
            self.requester.found(sequence)
        self.next = max(self.next, from_frame)

    def release_held(self, received_ns: int, out: list[Delivery]) -> None:
        """Take up what was held, or known as lost, for topics that a grant has named."""
        for number, first in self.declared_firsts.items():
            named = self.topics.get(number)
            if named is not None and named.is_wanted and named.expected is None:
                named.start(first)  # Begun after the grant was written.
        self.declared_firsts.clear()
        self.release_named(received_ns, out)
        for (number, first, count), reason in self.unnamed_lost:
            topic = self.topics.get(number)
            if topic is not None and topic.is_wanted:
                topic.lose(first, count, reason, received_ns, out)
        self.unnamed_lost.clear()
        if self.is_reliable:
            self._settle_frames([], "not_available", received_ns, out)

    def release_named(self, received_ns: int, out: list[Delivery]) -> None:
        """Hand out what was held for topics named by now; forget what nobody can name any more."""
        base = self.held_base = self.base
        for number in list(self.held):
            topic, runs = self.topics.get(number), self.held[number]
            left: list[Held] = []
            if topic is not None and topic.is_wanted and topic.expected is not None:
                for run in runs:
                    if topic.stream == self.stream or run[1] <= topic.expected:
                        topic.accept(*run, received_ns, out)
                    elif self.continues is not None:
                        left.append(run)
            else:
                left = [run for run in runs if self.is_awaiting_grant or run[0] > base]
            if len(left) < len(runs):
                self.held[number] = left
                self.held_bytes -= _held_bytes(runs) - _held_bytes(left)
            if not left:
                del self.held[number]

    def reconsider_interest(self) -> None:
        """Look again which topics are wanted here."""
        for topic in self.topics.values():
            is_wanted = self.is_wanted(topic.name)
            if topic.is_wanted and not is_wanted:
                topic.stop()
            if not is_wanted:
                for sequence in self.reassembly.drop_topic(topic.number):
                    topic.pass_by(sequence + 1)
            topic.is_wanted = is_wanted
        for name in [name for name in self.positions if not self.is_wanted(name)]:
            del self.positions[name]
        self.joins.reconsider()

    def skip(self, ranges: list[Range], received_ns: int, out: list[Delivery]) -> None:
        """Accept that frames held nothing for us."""
        self._settle_frames(ranges, "not_available", received_ns, out)

    def lose(self, lost: Lost, received_ns: int, out: list[Delivery]) -> None:
        """Accept that frames can no longer be had; the runs name what was in them."""
        for number, first, count in lost.runs:
            topic = self.topics.get(number)
            is_elsewhere = topic is not None and topic.stream != self.stream
            if topic is None or (is_elsewhere and self.continues is not None):
                if len(self.unnamed_lost) < MISSING_FRAMES_MAX:
                    self.unnamed_lost.append(((number, first, count), lost.reason))
            elif topic.is_wanted and not is_elsewhere:
                self.reassembly.drop((number, first))
                topic.lose(first, count, lost.reason, received_ns, out)
        self._lose_names()
        self._settle_frames(lost.ranges, lost.reason, received_ns, out)

    def _lose_names(self) -> None:
        """Ask for another grant: what is lost may have named topics.

        What came of these, and comes until then, is held from now on.
        """
        self.has_lost_names = self.is_awaiting_grant = True

    def abandon(
        self, frames: list[int], reason: str, received_ns: int, out: list[Delivery]
    ) -> None:
        """Give up frames without knowing what was in them."""
        if frames:
            self._lose_names()
            before = len(self.holes)
            open_holes = sum(1 for topic in self.topics.values() if topic.hole_first)
            ranges = [(frame, 1) for frame in frames]
            self._settle_frames(ranges, reason, received_ns, out, given_up=frames[-1])
            named = len(self.holes) > before or any(
                topic.hole_first for topic in self.topics.values()
            )
            if not named and not open_holes:
                self._pass_over(frames[0], frames[-1], reason)

    def is_overrun(self) -> bool:
        """Tell whether too much waits behind one missing frame: its sender is broken."""
        if self.ahead_bytes <= 2 * CACHE_BYTES_MAX:
            return False
        base, self.ahead_bytes = self.base, 0
        if base > self.ahead_base:
            self.ahead_base = base
            return False
        return True

    def _settle_frames(
        self, ranges: list[Range], reason: str, received_ns: int, out: list[Delivery],
        given_up: int = -1,
    ) -> None:  # fmt: skip
        missing = self.requester.missing
        for sequence in self.requester.within(ranges):
            self.requester.found(sequence)
        if self.held:
            self.release_named(received_ns, out)
        base = self.base
        for number, sequence in self.reassembly.drop_settled(base, given_up):
            topic = self.topics.get(number)
            if topic is not None and topic.stream == self.stream:
                topic.lose(sequence, 1, reason, received_ns, out)
        for topic in self.own_topics():
            if topic.waiting:
                topic.settle(base, reason, received_ns, out)
            if topic.hole_first and not missing:
                topic.close_hole()

    def close_holes(self) -> None:
        """Report the open holes: nothing is missing any more that could make them larger."""
        self.is_mended = False
        for topic in self.own_topics():
            topic.close_hole()

    def read_positions(self) -> dict[str, int]:
        """Return how far we are with each topic that is wanted."""
        return {
            topic.name: topic.expected
            for topic in self.topics.values()
            if topic.is_wanted and topic.expected is not None and not (topic.request or topic.hops)
        }

    def close(self, reason: str, received_ns: int, out: list[Delivery]) -> None:
        """End the stream: what is missing is lost, what waited is handed out."""
        self.abandon(sorted(self.requester.missing), reason, received_ns, out)
        for topic in self.own_topics():
            topic.settle(self.next + 1, reason, received_ns, out)
            topic.close_hole()
        if self.behind and self.passed_over is not None:
            self.blind_holes.append((*self.passed_over, next(iter(self.behind.values()))))
        self.has_lost_names = False
        self.joins.close(reason, received_ns, out)
        self.reassembly.clear()

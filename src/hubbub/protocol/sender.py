"""HOT. One outgoing stream: frames, their cache, their repairs, and the tail of the stream.

Frames leave in bursts. Repairs go first, but at most every other burst, so that repairing never
stops what is new. A frame gets its sequence here and a packet number each time it is sent. The
heartbeat that tells the end of the stream comes 10 ms after the last frame, then doubling, until
every receiver that is here has said that it has all: a lost last frame is found without a following
one.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from hubbub.limits import (
    FRAME_COST_BYTES,
    GRTT_FLOOR,
    TAIL_HEARTBEAT,
    TAIL_HEARTBEAT_CEILING,
    TAIL_HEARTBEAT_LEAVING,
    US,
    WINDOW_BYTES,
)
from hubbub.protocol.audience import ANYBODY, Audience, Roll, unite
from hubbub.protocol.burst import NOWHERE, Address, Burst, Pipes
from hubbub.protocol.cache import Body, Cache, body_bytes
from hubbub.protocol.flow import Flow
from hubbub.protocol.framing import Framer, Payload
from hubbub.protocol.topics import OutgoingTopic
from hubbub.wire import train
from hubbub.wire.batch import (
    RUN_BYTES,
    SINGLE_BYTES,
    Run,
    decode_runs,
    encode,
    encode_single,
    read_runs,
    read_segment_run,
)
from hubbub.wire.control import RANGE_BYTES, Range, Topic, encode_declarations, to_ranges
from hubbub.wire.header import (
    ASK,
    DATA,
    DECLARES,
    HEADER_BYTES,
    REFERS,
    REPAIR,
    SEGMENT,
    Prefix,
    finish,
    finish_parts,
    finish_unchecked,
)

_PREFIXES_MAX: Final = 1024

MakePrefix = Callable[[int, int, int, Audience], Prefix]
Numbered = tuple[int, Body, int, Audience]  # Sequence, body, flags, and who it is for.


def _join_run(runs: list[Run], last: dict[int, int], run: Run) -> None:
    """Add a run, or lengthen the last one of its topic if it goes on there."""
    number, first, count = run
    place = last.get(number)
    if place is not None:
        _, begun, length = runs[place]
        if begun <= first <= begun + length:
            runs[place] = number, begun, max(length, first + count - begun)
            return
    last[number] = len(runs)
    runs.append(run)


def _asking(frame: Numbered) -> Numbered:
    """Let a frame ask for STATUS."""
    sequence, body, flags, audience = frame
    return sequence, body, flags | ASK, audience


class Sender:
    """The sending end of one stream; `flow` and `cache` are None for best effort."""

    def __init__(
        self,
        stream: int,
        framer: Framer,
        flow: Flow | None,
        cache: Cache | None,
        make_prefix: MakePrefix,
        packet_numbers: Iterator[int],
        burst_bytes_max: int,
        next_sequence: int = 1,
        topics: Mapping[int, OutgoingTopic] | None = None,
        *,
        is_beside: bool = False,
    ) -> None:
        self.stream = stream
        self.is_beside = is_beside  # It carries the copies of topics.
        self.leaving = 0  # So many receivers go on by another stream, and miss only what is old.
        self.topics = {} if topics is None else topics
        self.framer = framer
        self.flow = flow
        self.cache = cache
        self.make_prefix = make_prefix
        self.packet_numbers = packet_numbers
        self.burst_bytes_max = burst_bytes_max
        self.next_sequence = next_sequence
        self.position = 0
        self.is_awaited = False  # Somebody waits for receivers to say that they have it.
        self.is_held = False  # The node is still looking around: nothing may go.
        self.repairs: dict[int, None] = {}  # Frames, in the order they were asked for.
        self._asker: Address | None = None  # Who asked last.
        self.repair_bytes = 0
        self.repaired_ns: dict[int, int] = {}
        # Who can follow the references in a frame: those it was sent to. Nobody else may have it.
        self.referred: dict[int, Pipes] = {}
        self._was_repair = False
        self.oversized: Numbered | None = None
        self.naming: list[Numbered] = []  # Frames that name topics to whom a link leads by now.
        self.tail_ns: int | None = None
        self._tail_interval_ns = TAIL_HEARTBEAT
        self._tail_ceiling_ns = TAIL_HEARTBEAT_CEILING
        self._prefixes: dict[tuple[int, int, Audience], Prefix] = {}
        self.frames_sent = 0
        self.repairs_sent = 0

    def is_blocked(self) -> bool:
        """Tell whether the window forbids a new frame."""
        flow = self.flow
        if flow is None or flow.limit is None:
            return False
        needed_bytes = self.framer.body_bytes_max + FRAME_COST_BYTES
        if flow.blocked_since_ns is not None and flow.resume_bytes > needed_bytes:
            needed_bytes = flow.resume_bytes
        if self.position + needed_bytes <= flow.limit:
            return False
        # With nothing under way one frame may always go, however small the window is.
        return not flow.is_acknowledged(self.next_sequence)

    def is_waiting(self) -> bool:
        """Tell whether nothing new may go, and since when was noted: nothing to do."""
        if self.framer.is_ahead:
            return True
        return self.flow is not None and self.flow.is_blocked and self.is_blocked()

    def hold_deadline(self) -> int | None:
        """Return when a held-back frame must go; None while it may not, lest a timer spin."""
        hold = self.framer.deadline()
        if hold is None or not self.framer.has_work:
            return hold
        is_forbidden = self.is_held or self.is_blocked() or self.framer.is_ahead
        return None if is_forbidden else hold

    def next_burst(self, now: int, received_ns: int, *, is_fresh: bool = True) -> Burst | None:
        """Make what goes out in the next system call; without `is_fresh` only repairs."""
        if self.repairs and not self._was_repair:
            self._was_repair = True
            burst = self._repair_burst(now)
            if burst is not None:
                return burst
        self._was_repair = False
        burst = self._fresh_burst(now, received_ns) if is_fresh else None
        if burst is None and self.repairs:
            burst = self._repair_burst(now)
        return burst

    def single(
        self, now: int, topic: OutgoingTopic, payload: Payload, published_ns: int
    ) -> bytes | None:
        """Make the whole frame of one message on a quiet stream; None: it must take its turn.

        What `next_burst` would make of it, at a third of the cost: this is the way of a round trip,
        and of large messages by reference, which wait for no others.
        """
        flow, framer, cache = self.flow, self.framer, self.cache
        if (
            flow is None
            or cache is None
            or framer.cells
            or framer.large
            or self.repairs
            or self.is_held
            or topic.sinks
            or topic.copy is not None
            or topic.forks
            or not (topic.is_declared and topic.takers and flow.has_present)
            or not framer.may_go_alone(payload)
        ):
            return None
        limit = flow.limit
        # Room for this frame, and for a whole one behind it: else this one would have to ask.
        reserve = framer.body_bytes_max + 2 * FRAME_COST_BYTES
        size_bytes = min(len(payload), framer.message_bytes_max) + SINGLE_BYTES
        if limit is not None and self.position + size_bytes + reserve > limit:
            return None
        sequence, flags, shown = self.next_sequence, 0, payload
        if len(payload) > framer.message_bytes_max:
            reference = framer.refer_alone(payload)
            if reference is None:
                return None
            flags, shown = REFERS, reference
            assert framer.route is not None
            self.referred[sequence] = framer.route
        body = encode_single(topic.number, topic.next_sequence, shown, published_ns)
        topic.next_sequence += 1
        if topic.history is not None:
            topic.history.add((payload,), (published_ns,))
        framer.count_single(now, len(payload))
        self.next_sequence = sequence + 1
        self.position = cache.add(now, sequence, self.position, body, flags)
        flow.blocked_since_ns = None
        self._tail_interval_ns = TAIL_HEARTBEAT
        self.tail_ns = now + TAIL_HEARTBEAT
        self.frames_sent += 1
        packet = next(self.packet_numbers)
        sent_us = now // US & 0xFFFF_FFFF
        shared = self._prefix(DATA, flags, topic.addressed)
        return finish(shared, sequence, packet, sent_us, body) + body

    def _fresh_burst(self, now: int, received_ns: int) -> Burst | None:
        framer = self.framer
        if self.is_held or not (framer.is_ready(now) or self.oversized or self.naming):
            return None
        if self.naming:
            return self._emit(now, [self.naming.pop(0)], 0, framer.destination)
        if self.oversized is not None:
            frame, self.oversized = self.oversized, None
            frame = _asking(frame) if self.is_awaited else frame
            return self._emit(now, [frame], 0, framer.destination)
        return self._train(now) or self._burst_of_frames(now, received_ns)

    def name(self, now: int, declared: Topic, index: int) -> None:
        """Name a topic to one receiver of the stream, before anything that it gets of it.

        A grant alone may be overtaken by frames on another link, and what has no name is dropped.
        """
        roll = Roll()
        roll.add(index)
        body = encode([], [], [], encode_declarations([declared]))
        self.naming.append(self._number(now, body, DECLARES, roll.audience()))

    def _burst_of_frames(self, now: int, received_ns: int) -> Burst | None:
        framer = self.framer
        is_draining = framer.is_overdue(now)
        frames: list[Numbered] = []
        while framer.has_frame or (is_draining and framer.cells):
            if not self._may_frame(now):
                break
            made = framer.next_body(now, received_ns)
            if made is None:
                break
            frame = self._number(now, *made)
            if framer.destination is NOWHERE or not (self.flow is None or self.flow.has_present):
                continue  # Owed to somebody who is away: it is in the cache.
            if frames and self._is_oversized(frame[1]):
                self.oversized = frame  # It goes alone, next.
                break
            frames.append(frame)
            if self._is_last_of_burst(frame[1], len(frames)):
                break
        if self.is_awaited and frames:
            frames[-1] = _asking(frames[-1])
        return self._emit(now, frames, 0, framer.destination) if frames else None

    def _train(self, now: int) -> Burst | None:
        """Make a burst of pieces of a large message alone; None: what is next takes its turn.

        What the loop over single frames would make of them, at 1.5 us a frame instead of 10. The
        burst ends with the last piece of the message, which is shorter, or with one that asks.
        """
        framer, flow, cache = self.framer, self.flow, self.cache
        if (
            flow is None
            or cache is None
            or not flow.has_present
            or self.is_awaited
            or framer.is_ahead
            or (flow.blocked_since_ns is not None and self.is_blocked())
        ):
            return None
        frame_bytes = framer.body_bytes_max + HEADER_BYTES
        count = frames_max = self.burst_bytes_max // frame_bytes
        if flow.limit is not None:
            # The frame that fills the window asks for STATUS: it is not of a train.
            cost = framer.body_bytes_max + FRAME_COST_BYTES
            count = min(count, (flow.limit - self.position) // cost - 1)
        cut = framer.cut_train(now, count)
        if cut is None:
            return None
        topic, pieces = cut
        first, sent_us = self.next_sequence, now // US & 0xFFFF_FFFF
        shared = self._prefix(SEGMENT, 0, topic.addressed)
        buffers: list[bytes | memoryview] = [
            memoryview(train.make(shared, first, self.packet_numbers, sent_us, pieces))
        ]
        self.next_sequence += pieces.frames
        self.position = cache.add_train(now, first, self.position, pieces)
        self.frames_sent += pieces.frames
        flow.unblocked()
        self._tail_interval_ns = TAIL_HEARTBEAT
        self.tail_ns = now + TAIL_HEARTBEAT
        if pieces.frames < frames_max:
            buffers += self._emit(now, [self._number(now, *framer.cut_next())], 0, None).buffers
        return Burst(framer.destination, buffers, frame_bytes)

    def _may_frame(self, now: int) -> bool:
        """Tell whether one more frame may go, and note if the receivers forbid it."""
        if self.framer.is_ahead:
            return False
        is_blocked = self.is_blocked()
        if is_blocked:
            assert self.flow is not None
            self.flow.blocked(now)
        return not is_blocked

    def _is_last_of_burst(self, body: Body, count: int) -> bool:
        # The short last piece of a large message cannot be padded, so it must end a burst.
        is_short_piece = (
            not isinstance(body, bytes) and body_bytes(body) < self.framer.body_bytes_max
        )
        # The next frame may be as long as any, and all before it are padded to its length.
        longest = self.framer.body_bytes_max + HEADER_BYTES
        is_full = (count + 1) * longest > self.burst_bytes_max
        return is_short_piece or is_full or self._is_oversized(body)

    def _is_oversized(self, body: Body) -> bool:
        """Tell whether a frame was made for pipes that are no more: it goes alone, in fragments."""
        return body_bytes(body) > self.framer.body_bytes_max

    def _number(self, now: int, body: Body, flags: int, audience: Audience) -> Numbered:
        sequence = self.next_sequence
        self.next_sequence = sequence + 1
        if self.cache is not None:
            assert self.flow is not None
            self.position = self.cache.add(now, sequence, self.position, body, flags)
            self.flow.unblocked()
            self._tail_interval_ns = TAIL_HEARTBEAT
            self.tail_ns = now + TAIL_HEARTBEAT
            if flags & REFERS and self.framer.route is not None:
                self.referred[sequence] = self.framer.route
            if self.is_blocked():
                flags |= ASK
        return sequence, body, flags, audience

    def _repair_burst(self, now: int) -> Burst | None:
        assert self.cache is not None and self.flow is not None
        frames: list[Numbered] = []
        for sequence in list(self.repairs):
            body = self.cache.body_of(sequence) if sequence in self.cache else None
            if frames and body is not None and self._is_oversized(body):
                break
            del self.repairs[sequence]
            if body is None:
                continue
            self.repair_bytes -= body_bytes(body)
            self.repaired_ns[sequence] = now
            self.repairs_sent += 1
            flags = self.cache.flags.get(sequence, 0)
            frames.append((sequence, body, flags, self._audience_of(body)))
            if self._is_last_of_burst(body, len(frames)):
                break
        if not self.repairs:
            self.repair_bytes = 0
        if not frames:
            return None
        if self.is_blocked() or self.is_awaited:
            # Who gets what it lacked has room again, and nothing new would tell us so.
            frames[-1] = _asking(frames[-1])
        # Nobody else waits for them, and by itself a repair is not queued behind new frames.
        is_alone = len(self.flow.receivers) == 1
        destination = self._asker if is_alone else self.framer.destination
        return self._emit(now, frames, REPAIR, destination)

    def _emit(
        self,
        now: int,
        frames: list[Numbered],
        flags: int,
        destination: Address | None,
    ) -> Burst:
        """Put headers on frames; all but the last get the same size, as offloading wants it."""
        sent_us = now // US & 0xFFFF_FFFF
        self.frames_sent += len(frames)
        buffers: list[bytes | memoryview] = []
        longest = max(body_bytes(frame[1]) for frame in frames)
        assert longest <= self.framer.body_bytes_max or len(frames) == 1
        is_checked = type(destination) is not Pipes  # Decision 12.
        for place, (sequence, body, frame_flags, audience) in enumerate(frames, 1):
            packet = next(self.packet_numbers)
            if isinstance(body, bytes):
                if place < len(frames) and len(body) < longest:
                    body += bytes(longest - len(body))
                shared = self._prefix(DATA, frame_flags | flags, audience)
                if is_checked:
                    buffers += finish(shared, sequence, packet, sent_us, body), body
                else:
                    buffers += finish_unchecked(shared, sequence, packet, sent_us), body
            else:
                head, data = body
                shared = self._prefix(SEGMENT, frame_flags | flags, audience)
                buffers += finish_parts(shared, sequence, packet, sent_us, head, data), head, data
        return Burst(destination, buffers, longest + HEADER_BYTES if len(frames) > 1 else 0)

    def _prefix(self, kind: int, flags: int, audience: Audience) -> Prefix:
        shared = self._prefixes.get((kind, flags, audience))
        if shared is None:
            if len(self._prefixes) >= _PREFIXES_MAX:
                self._prefixes.clear()
            shared = self.make_prefix(kind, flags, self.stream, audience)
            self._prefixes[kind, flags, audience] = shared
        return shared

    def _audience_of(self, body: Body) -> Audience:
        """Return who of those owed it by now a frame is for that is sent again.

        That may be nobody: who asked for it then only has to know that it misses nothing.
        """
        table = read_runs(body) if isinstance(body, bytes) else read_segment_run(body[0])
        topics = {number: self.topics.get(number) for number, _, _ in decode_runs(table)}
        if not topics or None in topics.values() or self.leaving:
            return ANYBODY
        framed = [
            one.copy if self.is_beside or one.live is not None else one
            for one in topics.values()
            if one is not None
        ]
        return unite({topic.addressed for topic in framed if topic is not None})

    def request(
        self, now: int, key: bytes, address: Address, ranges: list[Range], budget_bytes: int
    ) -> tuple[list[int], list[int]]:
        """Queue the repairs somebody asked for; return the frames (to skip, not available)."""
        assert self.flow is not None and self.cache is not None
        state = self.flow.receivers.get(key)
        if state is not None:
            self._asker = address
        skipped: list[int] = []
        gone: list[int] = []
        # A quarter each, so that the loss of one receiver cannot starve the repairs of others.
        is_alone = len(self.flow.receivers) == 1
        share = max(budget_bytes if is_alone else budget_bytes // 4, self.framer.body_bytes_max)
        for first, count in ranges:
            for sequence in range(first, min(first + count, self.next_sequence)):
                if state is None or sequence < state.from_frame:
                    skipped.append(sequence)
                elif sequence not in self.cache or key not in self.referred.get(sequence, (key,)):
                    gone.append(sequence)
                elif share > 0 and self.repair_bytes < budget_bytes:
                    share -= self._queue_repair(now, sequence)
        return skipped, gone

    def _queue_repair(self, now: int, sequence: int) -> int:
        assert self.flow is not None and self.cache is not None
        if sequence in self.repairs:
            return 0
        # A lone receiver knows when a repair is lost; the requests of many cross each other.
        linger_ns = GRTT_FLOOR if len(self.flow.receivers) == 1 else self.flow.grtt_ns
        if now - self.repaired_ns.get(sequence, -linger_ns) < linger_ns:
            return 0  # It is on its way.
        size = body_bytes(self.cache.body_of(sequence))
        self.repairs[sequence] = None
        self.repair_bytes += size
        return size

    def describe_lost(
        self, frames: list[int], bytes_max: int
    ) -> Iterator[tuple[list[Range], list[Run]]]:
        """Say which messages were in frames that are gone, in parts of at most so many bytes."""
        assert self.cache is not None
        part: list[int] = []
        spans = 0
        runs: list[Run] = []
        last: dict[int, int] = {}  # Topic -> place of its last run.
        for frame in frames:
            fresh = self.cache.runs_of(frame)
            size = (spans + 1) * RANGE_BYTES + (len(runs) + len(fresh)) * RUN_BYTES
            if part and size > bytes_max:
                yield list(to_ranges(part)), runs
                part, spans, runs, last = [], 0, [], {}
            spans += not part or frame != part[-1] + 1
            part.append(frame)
            for run in fresh:
                _join_run(runs, last, run)
        if part:
            yield list(to_ranges(part)), runs

    def acknowledged(self) -> None:
        """Forget what everybody has."""
        assert self.flow is not None and self.cache is not None
        before = self.flow.acknowledged
        self.cache.acknowledge(before)
        if self.referred:
            self.referred = {s: who for s, who in self.referred.items() if s >= before}
        if self.repaired_ns:
            self.repaired_ns = {s: at for s, at in self.repaired_ns.items() if s >= before}
        if self.flow.is_acknowledged(self.next_sequence):
            self.tail_ns = None

    def position_of(self, sequence: int) -> int:
        """Return where a frame begins in the stream; of one that is gone, where the oldest does."""
        assert self.cache is not None
        first = self.cache.first
        if first is not None and sequence < self.cache.end:
            return self.cache.position_of(max(sequence, first))
        return self.position

    def remind(self, now: int) -> None:
        """Tell the end of the stream soon, to one that may have missed it."""
        self._tail_interval_ns = TAIL_HEARTBEAT
        self.tail_ns = now + TAIL_HEARTBEAT

    def is_tail_due(self, now: int) -> bool:
        """Tell whether the end of the stream must be told again."""
        return self.tail_ns is not None and now >= self.tail_ns

    def tell_tail(self, now: int) -> None:
        """Note that the end of the stream was told, for whatever reason; set the next time."""
        if self.tail_ns is not None:
            self._tail_interval_ns = min(2 * self._tail_interval_ns, self._tail_ceiling_ns)
            self.tail_ns = now + self._tail_interval_ns

    def leave(self) -> None:
        """Tell the end of the stream more often from now on: there is little time for repairs."""
        self._tail_ceiling_ns = TAIL_HEARTBEAT_LEAVING

    def is_overdue(self, sequence: int) -> bool:
        """Tell whether a frame was sent, and the end of the stream has been told since."""
        return sequence < self.next_sequence and self._tail_interval_ns > TAIL_HEARTBEAT

    def repair_budget(self) -> int:
        """Return how many bytes of repairs may wait: one window."""
        assert self.flow is not None
        return max(
            (state.window_bytes for state in self.flow.receivers.values()), default=WINDOW_BYTES
        )

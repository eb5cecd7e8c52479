"""HOT. From published messages to the bodies of frames, with adaptive batching.

A quiet sender frames each message at once. When more than a threshold of messages were framed
within a millisecond it is busy: then messages wait until they fill a burst or the hold-back time is
over. A burst is what leaves in one system call: one frame where frames are large, dozens of an
Ethernet's size (one at a time those cost four times as much).
So latency is not paid for throughput (this is Distributor's hold-back, measured in messages over a
sliding window).

Publishers append to `pending` without a lock; everything else happens under the core's lock.
Sequences are given here, so the order in frames is the order of sequences. Large messages are cut
lazily, one burst at a time, between the frames of small ones: a message of 256 MiB blocks nobody.
Only what follows it on its own topic waits behind it: a receiver must wait for it anyway, and it
takes a message whose earlier frames have all come for the next one, or for one behind a hole.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate, chain, groupby
from typing import Any, Final

from hubbub.limits import (
    ALONE_BYTES_MIN,
    ANSWERS_WITHIN,
    BACKLOG_MESSAGES_MAX,
    BUSY_WINDOW,
    BYTES_PER_MESSAGE,
    PIPE_FRAME_BYTES,
    REFERENCES_PER_FRAME,
    REFERRED_BYTES_AT_ONCE,
)  # fmt: skip
from hubbub.protocol.audience import Audience, unite
from hubbub.protocol.burst import Address, Pipes
from hubbub.protocol.cache import Body
from hubbub.protocol.delivery import LOOPBACK, Delivery
from hubbub.protocol.topics import OutgoingTopic
from hubbub.wire import batch
from hubbub.wire.control import encode_declarations
from hubbub.wire.header import DECLARES, HEADER_BYTES, REFERS, TAG_BYTES
from hubbub.wire.train import Train

Payload = bytes | memoryview
Refer = Callable[[Sequence[Payload], Pipes], list[bytes]]
Columns = tuple[list[OutgoingTopic], list[bytes], list[int]]
Framed = tuple[Body, int, Audience]  # Body, flags, and who it is for.

CELLS: Final = 3
_SAMPLED_MESSAGES: Final = 64
_LOOKED_BEHIND: Final = 256  # So many may follow a large message on its topic, in a train.
_DEFERRED_FOR_A_TRAIN: Final = 8  # And so many on those of several large ones.
_GROUPED_FRAMES: Final = 8  # Among the messages of so many, those of one audience are put together.


class Large:
    """A message that is being cut into segments."""

    __slots__ = ("offset", "payload", "published_ns", "sequence", "stride", "topic", "view")

    def __init__(
        self, topic: OutgoingTopic, sequence: int, payload: bytes, published_ns: int, stride: int
    ) -> None:
        self.stride = stride
        self.topic = topic
        self.sequence = sequence
        self.payload = payload
        self.published_ns = published_ns
        self.view = memoryview(payload)
        self.offset = 0


class Framer:
    """Makes frame bodies of what is pending on one stream."""

    def __init__(
        self,
        stream: int,
        frame_bytes_max: int,
        holdback_ns: int,
        busy_messages: float,
        backlog_bytes: int,
        burst_frames: int = 1,
        reference_bytes: int = 0,
    ) -> None:
        self.reference_bytes = reference_bytes  # From this size on; 0: never.
        self.stream = stream
        self._of_group = frame_bytes_max, burst_frames
        self._resize(*self._of_group)
        self.holdback_ns = holdback_ns
        self.busy_messages = busy_messages
        self.backlog_bytes = backlog_bytes
        # Pending messages, three cells each: topic, payload, publish time. A tuple each would be
        # an object more for the collector to look at, and columns are slices of this.
        self.cells: list[Any] = []
        self.large: deque[Large] = deque()
        self.large_bytes = 0  # Of large messages, from `add_large` until they are cut to the end.
        self.behind: dict[OutgoingTopic, list[Any]] = {}  # What follows a large one on its topic.
        self._behind_count = 0
        self.loopback: list[Delivery] = []
        # The pipes to all receivers, if they have some. Then large payloads go by reference:
        # `refer` puts some into memory that they share, from the first on; none, if it cannot.
        self.route: Pipes | None = None
        self.destination: Address | None = None  # Where frames go; None: to the group.
        self._is_piped = False
        self.is_near = False
        self.refer: Refer | None = None
        self.is_read: Callable[[Pipes], bool] | None = None  # Whether they have all they got.
        self.is_busy = False
        self.may_pause = False  # It is, or was of late: `pause` may change something.
        self.batch_count = 1  # So many messages of late fill a frame.
        self.free_cells = 0  # With fewer, a publish only appends; with more, it tries to send;
        self.flush_wall_ns = 0  # At this time of the wall clock, too;
        self.backlog_cells = CELLS * BACKLOG_MESSAGES_MAX  # with so many, it waits.
        self.hold_until_ns = 0
        self._window_start_ns = 0
        self._window_load = 0
        self._load = 0  # Messages, a large one counting as several: so much goes by reference.
        self._calm_ns = 0  # When `calm` last looked, and after how much.
        self._calm_load = 0
        self._is_answering = False  # The next message is the first one after a wait,
        self._answered_ns = -ANSWERS_WITHIN - 1  # and when the last one was that was one.
        self._is_large_next = False
        self._is_mixed = False  # Messages of late were for several audiences;
        self._grouped_cells = 0  # so many of the next are sorted by that.
        self.messages = 0
        # Of another stream of the same class: it gets what has been numbered here, too, for those
        # whom that one is for.
        self.beside: Framer | None = None
        self.followers: set[Framer] = set()  # Of streams that get branches of topics from here.
        self.copied = 0  # Messages that were numbered elsewhere.

    def _resize(self, frame_bytes_max: int, burst_frames: int) -> None:
        # Room for the tag is left now, so that sealing later changes no frame size.
        self.body_bytes_max = frame_bytes_max - HEADER_BYTES - TAG_BYTES
        self.message_bytes_max = (
            self.body_bytes_max - batch.HEAD_BYTES - batch.RUN_BYTES - batch.TABLE_BYTES_PER_MESSAGE
        )
        self.stride = self.body_bytes_max - batch.SEGMENT_HEAD_BYTES
        self.burst_frames = burst_frames

    def take_route(self, route: Pipes | None, straight: Address | None = None) -> None:
        """Frame for this way from now on: pipes take larger frames than an Ethernet.

        Without pipes frames go straight to an address, or to the group.
        """
        self.destination = straight if route is None else route
        was_piped, self.route = self._is_piped, route
        self._is_piped = route is not None and not (route.has_group or route.addresses)
        self.is_near = route is not None and route.is_near
        if was_piped == self._is_piped:
            return
        if not self._is_piped:
            self._resize(*self._of_group)
        elif self._of_group[0] < PIPE_FRAME_BYTES:
            self._resize(PIPE_FRAME_BYTES, 1)
        payloads = [payload for payload in self.cells[1::CELLS] if self._is_large(payload)]
        self.large_bytes = sum(map(len, payloads)) + sum(
            len(large.payload) - large.offset for large in self.large
        )

    def _is_large(self, payload: Payload) -> bool:
        return len(payload) > self.message_bytes_max

    @property
    def has_work(self) -> bool:
        """Tell whether anything waits to be framed."""
        return bool(self.cells or self.large)

    @property
    def has_room(self) -> bool:
        """Tell whether more may be pending, or who publishes has to wait."""
        return len(self.cells) < self.backlog_cells and self.large_bytes <= self.backlog_bytes

    @property
    def pending_count(self) -> int:
        """Return how many messages wait to be framed."""
        return len(self.cells) // CELLS

    def add(self, topic: OutgoingTopic, payload: Payload, published_ns: int) -> None:
        """Append a message, and count its bytes if it is large; under the core's lock."""
        if self._is_large(payload):
            self.large_bytes += len(payload)
        self.cells += (topic, payload, published_ns)

    def take(self, topic: OutgoingTopic, payloads: list[bytes], times: list[int]) -> None:
        """Append a run of messages that were numbered on another stream."""
        cells: list[Any] = [topic] * (CELLS * len(payloads))
        cells[1::CELLS], cells[2::CELLS] = payloads, times
        self.cells += cells
        self.copied += len(payloads)
        sizes, bytes_max = list(map(len, payloads)), self.message_bytes_max
        if max(sizes) > bytes_max:
            self.large_bytes += sum(size for size in sizes if size > bytes_max)
        self._bound_backlog(sum(sizes) // len(sizes))

    @property
    def is_ahead(self) -> bool:
        """Tell whether another stream must first send some of what it got from here."""
        other = self.beside
        if other is not None and (
            len(other.cells) >= other.backlog_cells or other.large_bytes > other.backlog_bytes
        ):
            return True
        if not self.followers or not self.has_room:
            return False  # Two may follow each other: one that is full goes on, lest both wait.
        return not all(follower.has_room for follower in self.followers)

    def has_framed(self, topic: OutgoingTopic, before: int) -> bool:
        """Tell whether all messages of a topic before this one are in frames, to their end."""
        return topic.next_sequence >= before and not any(
            large.topic is topic and large.sequence < before for large in self.large
        )

    def is_clear_of(self, number: int) -> bool:
        """Tell whether nothing of a topic waits, or is being cut."""
        waiting = chain(self.cells[0::CELLS], self.behind)
        return all(topic.number != number for topic in waiting)

    def count_pending(self, topic: OutgoingTopic) -> int:
        """Return how many messages of a topic wait to be framed."""
        behind = self.behind.get(topic, ())
        return self.cells[::CELLS].count(topic) + len(behind) // CELLS

    def is_ready(self, now: int) -> bool:
        """Tell whether a burst should be made now."""
        if self.large or self.large_bytes >= REFERRED_BYTES_AT_ONCE:
            return True
        count = self.pending_count
        return count > 0 and (count >= self._burst_count or self.is_overdue(now))

    def is_overdue(self, now: int) -> bool:
        """Tell whether what waits should go, however little it is."""
        return not self.is_busy or now >= self.hold_until_ns

    @property
    def has_frame(self) -> bool:
        """Tell whether what waits fills a frame."""
        if self.large or self.large_bytes >= REFERRED_BYTES_AT_ONCE:
            return bool(self.large or self.cells)
        return self.pending_count >= self.batch_count

    @property
    def _burst_count(self) -> int:
        return self.batch_count * self.burst_frames

    @property
    def may_gather(self) -> bool:
        """Tell whether a large message may wait for others, to be framed with them by reference."""
        return (
            self.is_busy
            and self.is_near
            and self.refer is not None
            and self.large_bytes < REFERRED_BYTES_AT_ONCE
        )

    def gathers(self, size_bytes: int) -> bool:
        """Tell whether a large message of a busy stream only waits for others, as `may_gather`."""
        return (
            self.is_near
            and self.refer is not None
            and self.message_bytes_max < size_bytes < REFERRED_BYTES_AT_ONCE - self.large_bytes
        )

    def defer_flush(self, wall_ns: int) -> None:
        """Let more messages come before who publishes tries again."""
        self.flush_wall_ns = wall_ns + self.holdback_ns
        if len(self.cells) > self.free_cells:
            self.free_cells = len(self.cells) + CELLS * (self._burst_count // 4)
            # What is framed tells how large messages are, but for now nothing is. A look at the
            # newest is enough: it comes again before many more do.
            newest = self.cells[-CELLS * _SAMPLED_MESSAGES :][1::CELLS]
            self._bound_backlog(sum(map(len, newest)) // max(len(newest), 1))

    def deadline(self) -> int | None:
        """Return when a held-back frame must go."""
        return self.hold_until_ns if self.is_busy else None

    def next_body(self, now: int, received_ns: int) -> Framed | None:
        """Make the next frame; None when nothing is for anybody elsewhere."""
        while self.cells or self.large:
            is_crowded = CELLS * self._behind_count >= self.backlog_cells
            if self.large and (self._is_large_next or not self.cells or is_crowded):
                self._is_large_next = False
                if self.large[0].topic.takers:
                    return self._cut()
                self._end_large()
                continue
            self._is_large_next = True
            end = CELLS * (self.batch_count + 1)
            if self._is_mixed and self._grouped_cells < end < len(self.cells):
                self._group()
            if self.behind and not (end := self._defer(end)):
                continue
            if not self.cells[0].is_declared and (made := self._declare_alone()) is not None:
                return made
            if self._may_refer() and (made := self._frame_references(now, received_ns)) is not None:
                return made
            columns = self._take(now, end)
            if columns is not None:
                made = self._frame(columns, received_ns)
                if made is not None:
                    return made
        return None

    def calm(self, now: int) -> None:
        """At the end of a hold-back time: stop holding back if little came since the last one."""
        if not self.is_busy or now < self.hold_until_ns:
            return
        elapsed_ns = now - self._calm_ns
        came = self._load - self._calm_load + self.pending_count
        self._calm_ns, self._calm_load = now, self._load
        if came * BUSY_WINDOW <= self.busy_messages * elapsed_ns:
            self.is_busy = False
            self.free_cells = 0
        elif not self.cells:
            self.hold_until_ns = now + self.holdback_ns

    def pause(self, now: int) -> None:
        """Note that who publishes has stopped to wait: its next message answers, and goes at once.

        Others right behind it are held back again, if the stream was busy. Else round trips of
        64 KiB would make a stream busy, and one in a hundred would wait for the hold-back time.
        """
        self.hold_until_ns = 0
        if self.is_busy:
            self.is_busy = False
            self.free_cells = self.flush_wall_ns = 0  # Who appends just now looks at one of them.
            self._answered_ns = now
        self.may_pause = self._is_answering = now - self._answered_ns <= ANSWERS_WITHIN

    def goes_by_reference(self, payload: Payload) -> bool:
        """Tell whether a message is large, and may go alone to readers that share memory."""
        return len(payload) > self.message_bytes_max and self.may_go_alone(payload)

    def may_go_alone(self, payload: Payload) -> bool:
        """Tell whether a message that nothing is before need not wait for others after it."""
        if len(payload) <= self.message_bytes_max:
            return not self.is_busy
        return self.may_be_referred(payload) and not (self.is_busy and self._may_wait(payload))

    def _may_wait(self, payload: Payload) -> bool:
        """Tell whether a large message of a busy stream waits for others: its readers do not."""
        if len(payload) >= REFERRED_BYTES_AT_ONCE:
            return False
        if len(payload) < ALONE_BYTES_MIN or self.is_read is None or self.route is None:
            return True
        return not self.is_read(self.route)

    def refer_alone(self, payload: Payload) -> bytes | None:
        """Make a reference to a large message; None: there is no room for it where it is shared."""
        assert self.refer is not None and self.route is not None
        references = self.refer([payload], self.route)
        return references[0] if references else None

    def may_be_referred(self, payload: Payload) -> bool:
        """Tell whether a message may go to readers that share memory, alone or with others."""
        return self.is_near and self.refer is not None and 0 < self.reference_bytes <= len(payload)

    def _may_refer(self) -> bool:
        """Tell whether the next message may go by reference."""
        return self.may_be_referred(self.cells[1]) and self.cells[0].takers > 0

    def _frame_references(self, now: int, received_ns: int) -> Framed | None:
        """Frame the next messages by reference, as many as are large and find room; None: none."""
        assert self.refer is not None and self.route is not None
        topic, wanted = self.cells[0], self._count_referable()
        payloads: list[bytes] = self.cells[1 : CELLS * wanted : CELLS]
        references: list[bytes] = []
        while len(references) < wanted:
            made = self.refer(payloads[len(references) :], self.route)
            if not made:
                break
            references += made
        if not references:
            return None
        end = CELLS * len(references)
        payloads, published_ns = payloads[: len(references)], self.cells[2:end:CELLS]
        del self.cells[:end]
        sizes = list(map(len, payloads))
        self.large_bytes -= sum(size for size in sizes if size > self.message_bytes_max)
        declarations = b"" if topic.is_declared else self._declarations([topic])
        flags = REFERS | (DECLARES if declarations else 0)
        first = self._number(topic, payloads, published_ns, received_ns)
        self._watch_rate(now, len(references), sum(sizes))
        self.batch_count = REFERENCES_PER_FRAME if self.is_busy else 1
        self.free_cells = CELLS * (self._burst_count - 1) if self.is_busy else 0
        runs = [(topic.number, first, len(references))]
        return batch.encode(runs, references, published_ns, declarations), flags, topic.addressed

    def _count_referable(self) -> int:
        """Return how many of the next messages may share a frame of references."""
        topic, count, size_bytes = self.cells[0], 0, 0
        for at in range(0, min(CELLS * REFERENCES_PER_FRAME, len(self.cells)), CELLS):
            payload_bytes = len(self.cells[at + 1])
            if self.cells[at] is not topic or payload_bytes < self.reference_bytes:
                break
            count += 1
            size_bytes += payload_bytes
            if size_bytes >= REFERRED_BYTES_AT_ONCE:
                break
        return count

    def _take(self, now: int, end: int) -> Columns | None:
        """Take what fills one frame of these pending messages; a large one is set aside."""
        cells = self.cells
        if len(cells[1]) > self.message_bytes_max:
            topic, payload, published_ns = cells[:CELLS]
            del cells[:CELLS]
            self._set_aside(topic, payload, published_ns)
            return None
        columns = cells[0:end:CELLS], cells[1:end:CELLS], cells[2:end:CELLS]
        count = len(columns[0])
        fitting, size_bytes = self._count_fitting(columns)
        if fitting < count:
            columns = columns[0][:fitting], columns[1][:fitting], columns[2][:fitting]
            self.batch_count = fitting
        elif fitting > self.batch_count:
            self.batch_count = min(2 * fitting, 16_384)
        del cells[: CELLS * fitting]
        self._grouped_cells -= CELLS * fitting
        self._watch_rate(now, fitting, size_bytes)
        self.free_cells = CELLS * (self._burst_count - 1) if self.is_busy else 0
        return columns

    def _group(self) -> None:
        """Put together what is for the same receivers, among the messages of the next frames.

        The others drop such a frame unread. The order within a topic stays, and no frame gets
        smaller by it: that only some of them are for one audience alone costs nothing.
        """
        reach = min(len(self.cells), CELLS * self.batch_count * _GROUPED_FRAMES)
        groups: dict[Audience, list[Any]] = {}
        at = 0
        for topic, run in groupby(self.cells[0:reach:CELLS]):
            end = at + CELLS * sum(1 for _ in run)
            groups.setdefault(topic.addressed, []).extend(self.cells[at:end])
            at = end
        self.cells[:reach] = chain.from_iterable(groups.values())
        self._grouped_cells = reach
        self._is_mixed = len(groups) > 1

    def _defer(self, end: int) -> int:
        """Put what follows a large message behind it; return how many cells are left of these."""
        end = min(end, len(self.cells))
        rest: list[Any] = []
        for at in range(0, end, CELLS):
            item = self.cells[at : at + CELLS]
            queue = self.behind.get(item[0])
            if queue is None:
                rest += item
            else:
                queue += item
                self._behind_count += 1
        self.cells[:end] = rest
        return len(rest)

    def _count_fitting(self, columns: Columns) -> tuple[int, int]:
        """Return how many of the messages fit one frame, and the bytes they take there."""
        topics, payloads, _ = columns
        count = len(topics)
        room = self.body_bytes_max - batch.HEAD_BYTES
        is_one_topic = topics.count(topics[0]) == count
        runs = 1 if is_one_topic else sum(1 for _ in groupby(topics))
        room -= runs * batch.RUN_BYTES
        distinct = topics[:1] if is_one_topic else dict.fromkeys(topics)
        fresh = [topic for topic in distinct if not topic.is_declared]
        if fresh:
            room -= self._declaration_bytes(fresh)
        total = sum(map(len, payloads)) + count * batch.TABLE_BYTES_PER_MESSAGE
        if total <= room:
            return count, total
        edges = list(accumulate(len(one) + batch.TABLE_BYTES_PER_MESSAGE for one in payloads))
        fitting = max(bisect_right(edges, room), 1)
        return fitting, edges[fitting - 1]

    @staticmethod
    def _declaration_bytes(topics: list[OutgoingTopic]) -> int:
        return 8 + sum(topic.declared_bytes for topic in topics)

    def _watch_rate(self, now: int, count: int, size_bytes: int) -> None:
        mean_bytes = size_bytes // count
        self._bound_backlog(mean_bytes)
        if self.is_busy:
            self.messages += count
            self._load += count * (1 + mean_bytes // BYTES_PER_MESSAGE)
            self.hold_until_ns = now + self.holdback_ns
        else:
            self._count(now, count, mean_bytes)

    def _count(self, now: int, count: int, mean_bytes: int) -> None:
        """Count messages of a quiet stream, which may make it a busy one."""
        self.messages += count
        load = count * (1 + mean_bytes // BYTES_PER_MESSAGE)
        self._load += load
        if self._is_answering:
            self._is_answering = False
            self._answered_ns = self._window_start_ns = now
            self._window_load = int(self.busy_messages)
            return
        if now - self._window_start_ns > BUSY_WINDOW:
            self._window_start_ns = now
            self._window_load = 0
        self._window_load += load
        if self.holdback_ns and self._window_load > self.busy_messages:
            self.is_busy = self.may_pause = True
            self.batch_count = max(self.body_bytes_max // mean_bytes, 1)
            self.hold_until_ns = now + self.holdback_ns
            self._calm_ns, self._calm_load = now, self._load

    def _bound_backlog(self, mean_bytes: int) -> None:
        backlog_count = min(self.backlog_bytes // max(mean_bytes, 1), BACKLOG_MESSAGES_MAX)
        self.backlog_cells = CELLS * max(backlog_count, 4)
        self.free_cells = min(self.free_cells, self.backlog_cells)

    def count_single(self, now: int, size_bytes: int) -> None:
        """Count a message that was framed elsewhere."""
        self._watch_rate(now, 1, size_bytes + batch.TABLE_BYTES_PER_MESSAGE)
        if self.is_busy:
            if size_bytes > self.message_bytes_max:
                self.batch_count = REFERENCES_PER_FRAME
            self.free_cells = CELLS * (self._burst_count - 1)

    def _set_aside(self, topic: OutgoingTopic, payload: bytes, published_ns: int) -> None:
        sequence = topic.next_sequence
        topic.next_sequence = sequence + 1
        self.messages += 1
        if topic.history is not None:
            topic.history.add((payload,), (published_ns,))
        if topic.sinks:
            self.loopback.append(Delivery(topic, sequence, [payload], [published_ns], 0, LOOPBACK))
        if topic.copy is not None and self.beside is not None:
            self.beside.take(topic.copy, [payload], [published_ns])
        if topic.forks:
            _fork(topic, [payload], [published_ns])
        if topic.takers:
            self.large.append(Large(topic, sequence, payload, published_ns, self.stride))
            self.behind[topic] = []
        else:
            self.large_bytes -= len(payload)

    def _cut(self) -> Framed:
        """Cut the next segment of the first large message; its topic is declared before it."""
        large = self.large[0]
        audience = large.topic.addressed
        if not large.topic.is_declared:
            return batch.encode([], [], [], self._declarations([large.topic])), DECLARES, audience
        offset, size = large.offset, len(large.payload)
        head = batch.encode_segment_head(
            large.topic.number, large.sequence, large.published_ns, size, offset, large.stride
        )
        data = large.view[offset : offset + large.stride]
        large.offset = offset + len(data)
        self.large_bytes -= len(data)
        if large.offset == size:
            self._end_large()
        return (head, data), 0, audience

    def cut_train(self, now: int, count_max: int) -> tuple[OutgoingTopic, Train] | None:
        """Cut whole pieces of a large message at once, while nothing else waits; None: in turn.

        Its last piece is not among them: that ends a burst, and the message.
        """
        if count_max < 2:
            return None
        if not self.large and self._is_first_for_cutting():
            self._take(now, CELLS)
        if not self.large or (self.cells and self._is_anything_between()):
            return None
        large = self.large[0]
        topic, payload, stride, begin = large.topic, large.payload, large.stride, large.offset
        count = min(count_max, (len(payload) - begin - 1) // stride)
        is_plain = stride == self.stride and topic.is_declared and topic.takers
        if count < 2 or not is_plain:
            return None
        large.offset = begin + count * stride
        self.large_bytes -= count * stride
        about = topic.number, large.sequence, large.published_ns, len(payload)
        return topic, Train(about, payload, stride, begin, count)

    def cut_next(self) -> Framed:
        """Cut the piece of the large message that a train has left to be next."""
        assert self.large[0].offset > 0
        return self._cut()

    def _is_first_for_cutting(self) -> bool:
        """Tell whether the oldest pending message can only be cut."""
        cells = self.cells
        is_large = bool(cells) and self._is_large(cells[1])
        return is_large and cells[0].is_declared and not self.behind and not self._may_refer()

    def _is_anything_between(self) -> bool:
        """Tell whether small messages are to go between the pieces of large ones."""
        cells = self.cells
        if len(cells) > CELLS * _LOOKED_BEHIND:
            return True
        # Those of its own topic wait for it where they are: to put 60 messages of 64 KiB behind
        # each of them in turn takes 12 us a message, to count them 0.4.
        topics = cells[::CELLS]
        if topics.count(self.large[0].topic) == len(topics):
            return False
        return len(topics) > _DEFERRED_FOR_A_TRAIN or self._defer(len(cells)) > 0

    def _end_large(self) -> None:
        """Be done with the first large message, cut to its end or wanted by nobody any more."""
        large = self.large.popleft()
        self.large_bytes -= len(large.payload) - large.offset
        behind = self.behind.pop(large.topic)
        self._behind_count -= len(behind) // CELLS
        self.cells[:0] = behind

    def _declare_alone(self) -> Framed | None:
        """Declare the next message's topic in a frame of its own if both do not fit into one."""
        topic, payload = self.cells[:2]
        size = len(payload) + batch.TABLE_BYTES_PER_MESSAGE + self._declaration_bytes([topic])
        if not topic.takers or size <= self.message_bytes_max:
            return None
        return batch.encode([], [], [], self._declarations([topic])), DECLARES, topic.addressed

    def _declarations(self, topics: list[OutgoingTopic]) -> bytes:
        declared = []
        for topic in topics:
            topic.is_declared = True
            # A large message has its sequence already, and is still to come.
            declared.append(
                topic.declare(self.stream, topic.next_sequence - (topic in self.behind))
            )
        return encode_declarations(declared)

    def _frame(self, columns: Columns, received_ns: int) -> Framed | None:
        topics, payloads, published_ns = columns
        topic = topics[0]
        is_one_topic = topics.count(topic) == len(topics)
        distinct = topics[:1] if is_one_topic else dict.fromkeys(topics)
        fresh = [t for t in distinct if not t.is_declared and t.takers]
        declarations = self._declarations(fresh) if fresh else b""
        flags = DECLARES if fresh else 0
        if is_one_topic:
            first = self._number(topic, payloads, published_ns, received_ns)
            if not topic.takers:
                return None
            runs = [(topic.number, first, len(payloads))]
            body = batch.encode(runs, payloads, published_ns, declarations)
            return body, flags, topic.addressed
        made = self._frame_many(columns, declarations, received_ns)
        if made is None:
            return None
        audiences = {topic.addressed for topic in distinct if topic.takers}
        self._is_mixed = self._is_mixed or len(audiences) > 1
        return made, flags, unite(audiences)

    def _frame_many(self, columns: Columns, declarations: bytes, received_ns: int) -> bytes | None:
        topics, payloads, published_ns = columns
        runs: list[batch.Run] = []
        sent: list[bytes] = []
        times: list[int] = []
        at = 0
        for topic, group in groupby(topics):
            end = at + sum(1 for _ in group)
            first = self._number(topic, payloads[at:end], published_ns[at:end], received_ns)
            if topic.takers:
                runs.append((topic.number, first, end - at))
                sent += payloads[at:end]
                times += published_ns[at:end]
            at = end
        if not runs:
            return None
        return batch.encode(runs, sent, times, declarations)

    def _number(
        self,
        topic: OutgoingTopic,
        payloads: list[bytes],
        times: list[int],
        received_ns: int,
    ) -> int:
        first = topic.next_sequence
        topic.next_sequence = first + len(payloads)
        if topic.history is not None:
            topic.history.add(payloads, times)
        if topic.sinks:
            self.loopback.append(Delivery(topic, first, payloads, times, received_ns, LOOPBACK))
        if topic.copy is not None and self.beside is not None:
            self.beside.take(topic.copy, payloads, times)
        if topic.forks:
            _fork(topic, payloads, times)
        return first


def _fork(topic: OutgoingTopic, payloads: list[bytes], times: list[int]) -> None:
    """Hand numbered messages on to the branches of their topic that somebody gets."""
    for framer, branch in topic.forks:
        if branch.copy is not None:
            framer.take(branch.copy, payloads, times)

"""HOT. The thread that writes: takes what waits, encodes it, commits it, however long that takes.

While the disk syncs one group the next one gathers, so the groups grow with the load. A disk that
refuses is tried again for as long as somebody records; what comes meanwhile waits in the intake,
which says what it had no room for.
"""

import logging
import threading
import time
from collections import Counter
from time import time_ns
from typing import Any, Final

from hubbub.limits import (
    RECORDER_CLOSE_S,
    RECORDER_GROUP_BYTES,
    RECORDER_GROUP_PATIENCE_S,
    RECORDER_RETRY_S,
    RECORDER_TOPICS_KEPT,
    SECOND,
)
from hubbub.message import Served, Source
from hubbub.protocol.delivery import DeliveredTopic, Delivery
from hubbub.recorder import rows
from hubbub.recorder.intake import Batch, Intake
from hubbub.recorder.samples import Slotted
from hubbub.store.journal import Topic
from hubbub.store.records import Timing, encode_label
from hubbub.store.writing import Journal

_log = logging.getLogger("hubbub.recorder")
_IDLE_S: Final = 0.2
_NO_SERVICE: Final = ("", 0)

Passed = tuple[Source, str]  # From whom, by which link.


class Scribe:
    """Writes the intake of a recorder into its journal, in a thread of its own."""

    def __init__(self, intake: Intake, journal: Journal) -> None:
        self.journal = journal
        self.messages: Counter[Passed] = Counter()
        self.payload_bytes: Counter[Passed] = Counter()
        self.refused: OSError | None = None  # Why the disk takes nothing just now.
        self.unwritten = 0  # Messages that were still not written when all had to end.
        self.error: BaseException | None = None
        self._intake = intake
        self._labels: dict[Any, tuple[bytes, int | None, Passed]] = {}
        self._written = 0
        self._refused_since_ns = 0
        self._end_at_s: float | None = None
        self._progress = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="hubbub-recorder", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def finish(self) -> None:
        """Write what is left, as far as the disk lets us, and end."""
        self._end_at_s = time.monotonic() + RECORDER_CLOSE_S
        self._intake.wake()
        self._thread.join()

    def flush(self, timeout_s: float | None) -> bool:
        """Wait until everything that is in the intake now is on the disk."""
        wanted = self._intake.put
        with self._progress:
            return self._progress.wait_for(
                lambda: self._written >= wanted or not self._thread.is_alive(), timeout_s
            )

    def bad_segment(self, segment: int, error: OSError) -> None:
        """Tell, in the journal itself, that a segment was given up."""
        _log.error("segment %d is given up, a new one is begun: %s", segment, error)
        row = rows.own_event_row(time_ns(), "SegmentSealed", segment=segment, reason=str(error))
        self._intake.put_row(rows.EVENTS, row)

    def _run(self) -> None:
        try:
            while self._write_next():
                pass
            self.journal.close()
        except Exception as error:
            # A defect of ours: whoever looks at the statistics must see that nothing is written.
            _log.exception("the recorder has stopped")
            self.error = error
        with self._progress:
            self._progress.notify_all()

    def _write_next(self) -> bool:
        """Write one group; False: all is written, and no more will come."""
        is_ending = self._end_at_s is not None  # Before the look: what came last counts.
        batch = self._intake.take(RECORDER_GROUP_BYTES)
        if batch.items or batch.loss or batch.lost_rows:
            self._write(batch)
        elif is_ending:
            return False
        elif self.journal.is_due:
            self._commit()
        else:
            self._gather()
        return True

    def _gather(self) -> None:
        """Wait for something, and then a little for more."""
        self._intake.wait(_IDLE_S)
        if self._intake.bytes < RECORDER_GROUP_BYTES and self._end_at_s is None:
            time.sleep(RECORDER_GROUP_PATIENCE_S)

    def _write(self, batch: Batch) -> None:
        for item in batch.items:
            if isinstance(item, Delivery):
                self._add(item)
            else:
                self.journal.add_row(*item)
        for row in rows.loss_rows(batch.loss, time_ns()) if batch.loss else ():
            self.journal.add_row(rows.EVENTS, row)
        if batch.lost_rows:
            row = rows.own_event_row(time_ns(), "RecorderLostRows", count=batch.lost_rows)
            self.journal.add_row(rows.EVENTS, row)
        batch.items.clear()
        self._commit()
        self._intake.done(batch)
        with self._progress:
            self._written = batch.last
            self._progress.notify_all()

    def _add(self, delivery: Delivery) -> None:
        topic, first, payloads, published_ns, received_ns, passage = delivery
        link = passage if isinstance(passage, str) else passage.link
        served = (passage.service, passage.epoch) if isinstance(passage, Served) else _NO_SERVICE
        label, replayed_ns, passed = self._label_of(topic, link, served)
        size = sum(map(len, payloads))
        timing = None
        if isinstance(passage, Slotted):
            timing = Timing(
                passage.tick_ns, passage.period_ns, passage.epoch_ns,
                passage.clock_offset_ns, passage.clock_error_ns,
            )  # fmt: skip
        self.messages[passed] += len(payloads)
        self.payload_bytes[passed] += size
        if size <= RECORDER_GROUP_BYTES:
            self.journal.add_run(
                label, first, payloads, published_ns, received_ns, replayed_ns, timing
            )
            return
        for at, payload in enumerate(payloads):
            self.journal.add_run(
                label, first + at, [payload], [published_ns[at]], received_ns, replayed_ns
            )

    def _label_of(
        self, topic: DeliveredTopic, link: str, served: tuple[str, int]
    ) -> tuple[bytes, int | None, Passed]:
        replayed_ns = topic.replayed_ns or None
        hops = getattr(topic, "hops", 0)  # Only what comes from other nodes has any.
        key = (topic.subject, topic.source, topic.schema_hash, link, replayed_ns, served, hops)
        known = self._labels.get(key)
        if known is None:
            if len(self._labels) >= RECORDER_TOPICS_KEPT:
                self._labels.clear()
            source = topic.source
            told = Topic(
                topic.subject, source.name, source.id, source.incarnation,
                topic.schema_name, topic.schema_hash, *served, hops,
            )  # fmt: skip
            known = encode_label(told, link), replayed_ns, (source, link)
            self._labels[key] = known
        return known

    def _commit(self) -> None:
        """Bring the group onto the disk, however often it takes; or give up when all must end."""
        while not self.journal.commit():
            self._note_refusal()
            if self._end_at_s is not None and time.monotonic() >= self._end_at_s:
                self.unwritten += self.journal.give_up()
                _log.error("%d messages could not be written: %s", self.unwritten, self.refused)
                return
            time.sleep(RECORDER_RETRY_S)
        if self.refused is not None:
            self._note_recovery()

    def _note_refusal(self) -> None:
        error = self.journal.refused
        if self.refused is None and error is not None:
            self._refused_since_ns = time_ns()
            self.journal.keep()
            _log.warning("nothing is acknowledged: the disk refuses: %s", error)
        self.refused = error

    def _note_recovery(self) -> None:
        now = time_ns()
        seconds = (now - self._refused_since_ns) / SECOND
        _log.warning("the disk takes what is recorded again, after %.1f s", seconds)
        reason, self.refused = str(self.refused), None
        row = rows.own_event_row(now, "RecorderStalled", seconds=seconds, reason=reason)
        self._intake.put_row(rows.EVENTS, row)

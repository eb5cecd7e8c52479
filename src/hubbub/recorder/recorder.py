"""`hubbub.Recorder`: a node that writes down what it hears, and loses nothing it acknowledged."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import time_ns
from typing import Any

from hubbub.closing import Closing
from hubbub.errors import ConfigurationError, MissingExtra, StoreError
from hubbub.given import is_number
from hubbub.limits import (
    JOURNAL_SPLIT_BYTES,
    JOURNAL_SPLIT_BYTES_MAX,
    JOURNAL_SPLIT_BYTES_MIN,
    JOURNAL_SPLIT_S,
    RECORDER_QUEUE_BYTES,
    RECORDER_QUEUE_BYTES_MIN,
    SECOND,
)
from hubbub.node import Node
from hubbub.opening import open as open_node
from hubbub.recorder import quota, rows
from hubbub.recorder.intake import Intake
from hubbub.recorder.samples import Observer
from hubbub.recorder.scribe import Scribe
from hubbub.recorder.served import ServiceTap
from hubbub.recorder.tap import Tap
from hubbub.recorder.watch import Counted, Watch
from hubbub.store.converting import Converter
from hubbub.store.disk import Disk
from hubbub.store.lock import StoreLock
from hubbub.store.recovery import Recovered, recover
from hubbub.store.writing import Journal
from hubbub.subjects import check_patterns

_log = logging.getLogger("hubbub.recorder")
_OWN_S = 1.0  # So long a recorder that closes waits for receivers of what its node published.


@dataclass(frozen=True, slots=True)
class RecorderStatistics:
    """What a recorder did since it was opened.

    `lost` is what there was no room for in the queue, and what a disk that refused to the end did
    not take; each is in the recording as an event, with subject, source and sequences.
    """

    recorded: int
    acknowledged: int
    payload_bytes: int
    """Of what was recorded: the size that `hubbub store info`, tables and reports tell, too."""
    journal_bytes: int
    """Written for it: payloads with who, when and what, and everything that is no message."""
    lost: int
    commits: int
    segments: int
    bad_segments: int
    refusals: int
    queue_bytes: int
    is_triggered: bool
    refused: str
    """Why the disk takes nothing just now; empty: it does."""
    removed_files: int
    removed_segments: int
    removed_messages: int
    """Of segments that the quota removed before they were converted."""
    torn_bytes: int
    error: str


class Recorder(Closing):
    """Record what flows over the bus into a store, until it is closed.

        with hubbub.Recorder(node, ["/plant/..."], "recording") as recorder:
            ...
            recorder.flush()
            print(recorder.acknowledged)

    `node` is an open node, or options for `hubbub.open`, whose node then ends with the recorder.
    Publishers never wait for the disk: `queue_bytes` of messages may wait for it here.

    A segment of the journal is closed when it has `split_size` bytes or a million messages, or
    after `split_time` seconds if messages are in it; then a process of low priority turns it into
    Parquet files, unless `convert` is False. What is published in `services` is recorded as well.
    With `quota` bytes the oldest data goes when the store is larger. With `pre` seconds nothing is
    written until `trigger()` is called: then what came in the last `pre` seconds is, and all that
    follows.
    """

    def __init__(
        self,
        node: Node | Mapping[str, Any] | None,
        patterns: str | Iterable[str],
        store: str | Path,
        *,
        queue_bytes: int = RECORDER_QUEUE_BYTES,
        split_size: int = JOURNAL_SPLIT_BYTES,
        split_time: float = JOURNAL_SPLIT_S,
        quota: int | None = None,
        pre: float = 0.0,
        convert: bool = True,
        services: Iterable[str] = (),
        disk: Disk | None = None,
    ) -> None:
        self.patterns = _check_patterns(patterns)
        _check_options(queue_bytes, split_size, split_time, quota, pre)
        self.store = Path(store)
        self._quota_bytes = quota
        self._removed = [0, 0, 0]
        self._is_over_quota = False
        self._is_closed = False
        self._segments_seen = 0
        with ExitStack() as undo:
            self._lock = StoreLock(self.store)
            undo.callback(self._lock.release)
            self._recovered = self._recover(disk or Disk())
            self._converter = self._start_converter() if convert else None
            if self._converter is not None:
                undo.callback(self._converter.finish)
            self._owns_node = not isinstance(node, Node)
            self.node = node if isinstance(node, Node) else open_node(**(node or {}))
            if self._owns_node:
                undo.callback(self.node.close)
            self._intake = Intake(queue_bytes, int(pre * SECOND))
            self._scribe = self._make_scribe(disk, split_size, split_time)
            self._begin(services, undo)
            undo.pop_all()

    def _begin(self, services: Iterable[str], undo: ExitStack) -> None:
        """Let what the node hears come in."""
        self._watch = Watch(self.node, self._intake, self._passing, self._look)
        self._observer = Observer(self.node, self.patterns, self._intake)
        self._tap = Tap(self.node._host, self.patterns, self._intake)
        self._tell_beginning()
        self._scribe.start()
        undo.callback(self._scribe.finish)
        self.node._host.open(self._tap, [(one, at) for at, one in enumerate(self.patterns)])
        undo.callback(self._observer.close)
        self._served = [
            ServiceTap(self.node, self.node.service(name), self._intake) for name in services
        ]
        self._observer.look()
        self._watch.start()

    def _recover(self, disk: Disk) -> Recovered:
        try:
            recovered = recover(self.store, time_ns(), disk)
        except OSError as error:
            raise StoreError(f"{self.store} cannot be recorded into: {error.strerror}") from error
        for torn in recovered.torn:
            _log.warning(
                "segment %d ended in a write that never ended: %d bytes cut, none acknowledged",
                *torn,
            )
        return recovered

    def _start_converter(self) -> Converter:
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            raise MissingExtra(
                "recording into Parquet files needs pyarrow: pip install 'hubbub[recorder]',"
                " or give convert=False for the journal alone"
            ) from None
        return Converter(self.store)

    def _make_scribe(self, disk: Disk | None, split_size: int, split_time: float) -> Scribe:
        journal = Journal(
            self.store,
            self._recovered.start,
            split_bytes=split_size,
            split_ns=int(split_time * SECOND),
            clock=time_ns,
            disk=disk,
            on_bad=lambda segment, error: self._scribe.bad_segment(segment, error),
        )
        return Scribe(self._intake, journal)

    def _tell_beginning(self) -> None:
        """Record that a recording begins, or goes on, and what was cut for that."""
        start = self._recovered.start
        told = {"patterns": self.patterns, "offset": start.offset, "segment": start.segment}
        self._tell("RecorderStarted", **told)
        for torn in self._recovered.torn:
            self._tell("RecorderTorn", segment=torn.segment, bytes=torn.size_bytes)

    def _tell(self, kind: str, **told: Any) -> None:
        self._intake.put_row(rows.EVENTS, rows.own_event_row(time_ns(), kind, **told))

    def _passing(self) -> Iterator[tuple[Counted, int]]:
        """Count what was recorded of each node and link, and of the recorder itself."""
        scribe = self._scribe
        for (source, link), count in list(scribe.messages.items()):
            yield (source, link, "messages"), count
        for (source, link), count in list(scribe.payload_bytes.items()):
            yield (source, link, "bytes"), count
        for name, value in (
            ("recorder_recorded", scribe.journal.statistics().messages),
            ("recorder_payload_bytes", sum(list(scribe.payload_bytes.values()))),
            ("recorder_commits", scribe.journal.statistics().commits),
            ("recorder_lost", self._intake.lost.total),
        ):
            yield (None, None, name), value

    def _look(self) -> None:
        """Each second: let closed segments be converted, and keep to the quota."""
        self._observer.look()
        seen = self._scribe.journal.statistics().segments
        if seen == self._segments_seen:
            return
        self._segments_seen = seen
        if self._converter is not None:
            self._converter.nudge()
        if self._quota_bytes is not None:
            self._keep_to(self._quota_bytes)

    def _keep_to(self, quota_bytes: int) -> None:
        removed = quota.enforce(self.store, quota_bytes, time_ns())
        if removed is None:
            self._is_over_quota = False
            return
        for place, count in enumerate(removed[:3]):
            self._removed[place] += count
        told = {"quota_bytes": quota_bytes, "bytes": removed.size_bytes}
        for name in removed.dropped:
            self._tell("ReaderDropped", reader=name, **told)
        if removed.files or removed.segments:
            gone = {"files": removed.files, "segments": removed.segments}
            self._tell("QuotaReached", **gone, count=removed.messages, **told)
        for row in rows.loss_rows(removed.loss, time_ns()) if removed.loss else ():
            self._intake.put_row(rows.EVENTS, row)
        if removed.held_bytes and not self._is_over_quota:
            _log.warning(
                "%s is larger than its quota: readers need what is oldest (hubbub store info)",
                self.store,
            )
            self._tell("QuotaExceeded", held_bytes=removed.held_bytes, **told)
        self._is_over_quota = bool(removed.held_bytes)

    @property
    def acknowledged(self) -> int:
        """Return up to which offset everything is on the disk for certain.

        Offsets count the messages of a store, also over several recorders one after the other.
        """
        return self._scribe.journal.acknowledged

    @property
    def is_triggered(self) -> bool:
        """Tell whether what comes is written; only `pre` makes it wait."""
        return self._intake.is_triggered

    def trigger(self) -> None:
        """Write what the last `pre` seconds brought, and everything from now on."""
        if not self._intake.is_triggered:
            self._tell("RecorderTriggered")
            self._intake.trigger()

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until everything that has come is acknowledged; False: not within the timeout.

        What this node itself published has come, too.
        """
        self._take_own(timeout)
        return self._scribe.flush(timeout)

    def _take_own(self, timeout: float | None) -> None:
        """Let our node send what it holds back: some of it may be for us."""
        if not self.node.is_closed:
            self.node.flush(timeout)

    def close(self) -> None:
        """Write what has come, sync it, and end; a second time does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._take_own(_OWN_S)
        self._tap.close()
        for tap in self._served:
            tap.close()
        self._scribe.flush(_OWN_S)  # The last look counts all, unless the disk stands still.
        self._watch.finish()
        self._observer.close()
        self._tell("RecorderStopped")
        self._scribe.finish()
        if self._converter is not None:
            self._converter.nudge()
            self._converter.finish()
        if self._owns_node:
            self.node.close()
        self._lock.release()

    def statistics(self) -> RecorderStatistics:
        """Return what this recorder did."""
        scribe, journal = self._scribe, self._scribe.journal.statistics()
        files, segments, messages = self._removed
        return RecorderStatistics(
            recorded=journal.messages,
            acknowledged=journal.acknowledged,
            payload_bytes=sum(list(scribe.payload_bytes.values())),
            journal_bytes=journal.bytes,
            lost=self._intake.lost.total + scribe.unwritten,
            commits=journal.commits,
            segments=journal.segments,
            bad_segments=journal.bad_segments,
            refusals=journal.refusals,
            queue_bytes=self._intake.bytes,
            is_triggered=self._intake.is_triggered,
            refused=str(scribe.refused or ""),
            removed_files=files,
            removed_segments=segments,
            removed_messages=messages,
            torn_bytes=sum(torn.size_bytes for torn in self._recovered.torn),
            error=repr(scribe.error) if scribe.error else "",
        )

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{self.acknowledged} acknowledged"
        return f"<Recorder of {', '.join(self.patterns)} into {self.store}, {state}>"


def _check_patterns(patterns: str | Iterable[str]) -> tuple[str, ...]:
    found = tuple(check_patterns(patterns))
    if not found:
        raise ConfigurationError("patterns=(): name at least one pattern, such as /...")
    return found


def _check_options(
    queue_bytes: int, split_size: int, split_time: float, quota: int | None, pre: float
) -> None:
    """Refuse options that cannot work, saying what can."""
    if not is_number(queue_bytes) or queue_bytes < RECORDER_QUEUE_BYTES_MIN:
        raise ConfigurationError(
            f"queue_bytes={queue_bytes!r}: at least {RECORDER_QUEUE_BYTES_MIN} may wait for"
            " the disk"
        )
    is_size = is_number(split_size)
    if not is_size or not JOURNAL_SPLIT_BYTES_MIN <= split_size <= JOURNAL_SPLIT_BYTES_MAX:
        raise ConfigurationError(
            f"split_size={split_size!r}: give bytes between {JOURNAL_SPLIT_BYTES_MIN} and"
            f" {JOURNAL_SPLIT_BYTES_MAX}"
        )
    if not is_number(split_time) or not split_time > 0:
        raise ConfigurationError(f"split_time={split_time!r}: give seconds, more than 0")
    if not is_number(pre) or not pre >= 0:
        raise ConfigurationError(f"pre={pre!r}: give seconds, 0 to write everything at once")
    if quota is not None and not (is_number(quota) and quota >= 2 * split_size):
        raise ConfigurationError(
            f"quota={quota!r}: give at least two segments, {2 * split_size} bytes, or a smaller"
            " split_size"
        )

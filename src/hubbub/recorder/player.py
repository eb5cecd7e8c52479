"""Plays a recording: publishes its messages again, in order, when they are due.

Each message is due so long after the first as it was received after the first, divided by the rate.
That is reckoned from the beginning, never from the message before, so nothing adds up: who is late
catches up. Messages keep their publish time and type, and are marked by when the playing began.

A subject that was published as two types needs two topics, and a node has one topic a subject: the
second type is published by a second node.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic_ns, time_ns
from typing import Any, Final, NamedTuple

from hubbub.errors import Backpressure, ConfigurationError
from hubbub.given import is_number
from hubbub.limits import SECOND
from hubbub.node import Node
from hubbub.publisher import Publisher
from hubbub.recorder.ahead import Ahead
from hubbub.schema import Schema
from hubbub.subjects import check_subject, matches

_COLUMNS: Final = (
    *("offset", "subject", "schema", "schema_hash", "payload", "published_ns", "received_ns"),
)
_REST: Final = "/..."
_SLICE_MESSAGES: Final = 512
_SLICES_AHEAD: Final = 8
_HASH_MASK: Final = (1 << 64) - 1
AS_FAST_AS_POSSIBLE: Final = float("inf")


class Recorded(NamedTuple):
    """A message of a recording."""

    offset: int
    subject: str
    schema: Schema
    payload: bytes
    published_ns: int
    received_ns: int


@dataclass(slots=True)
class Plan:
    """What is going to be played."""

    messages: int = 0
    start_ns: int = 0
    end_ns: int = 0
    last_offset: int = -1
    topics: dict[tuple[str, Schema], int] = field(default_factory=dict)

    @property
    def span_ns(self) -> int:
        """Return how long it took when it was recorded."""
        return self.end_ns - self.start_ns


@dataclass(slots=True)
class Played:
    """What was played so far."""

    messages: int = 0
    size_bytes: int = 0
    unheard: int = 0  # Nobody wanted them.
    receivers: int = 0  # At most, of one message.
    rounds: int = 0
    late_ns: int = 0  # The latest one.
    position_ns: int = 0  # Receive time of the newest.


class Renaming:
    """Other names for subjects: of one, or of all below one (`/a/...` to `/b/...`)."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._exact: dict[str, str] = {}
        self._below: list[tuple[str, str]] = []
        for old, new in names.items():
            if old.endswith(_REST) != new.endswith(_REST):
                raise ConfigurationError(
                    f"{old}={new}: both end in {_REST}, and all below is renamed, or neither"
                )
            check_subject(old.removesuffix(_REST))
            check_subject(new.removesuffix(_REST))
            if old.endswith(_REST):
                self._below.append((old, new.removesuffix("...")))
            else:
                self._exact[old] = new

    def __call__(self, subject: str) -> str:
        """Return the name that a subject gets."""
        for old, new in self._below:
            if matches(old, subject):
                return new + subject[len(old) - len("...") :]
        return self._exact.get(subject, subject)


class Player:
    """Publish a recording again.

    with hubbub.open("player") as node:
        hubbub.Player(node, "recording", rate=2.0).play()
    """

    def __init__(
        self,
        node: Node,
        store: str | Path,
        *,
        rate: float = 1.0,
        subjects: str | Iterable[str] = (),
        start: Any = None,
        end: Any = None,
        remap: Mapping[str, str] | None = None,
        open_another: Callable[[], Node] | None = None,
    ) -> None:
        if not is_number(rate) or not rate > 0:
            raise ConfigurationError(f"rate={rate!r}: give a number above 0, 1 for its own speed")
        self._store = _open_store(store)
        self._rate = rate
        self._subjects = (subjects,) if isinstance(subjects, str) else tuple(subjects)
        self._start, self._end = start, end
        self._rename = Renaming(remap or {})
        self._nodes = [node]
        self._open_another = open_another
        self._publishers: dict[tuple[str, Schema], Publisher] = {}
        self._is_stopped = False
        self._wake: SimpleQueue[None] = SimpleQueue()  # An Event may lock up a signal handler.
        self.replayed_ns = time_ns()
        self.played = Played()

    def plan(self, on_fault: Callable[[str], object] | None = None) -> Plan:
        """Look what there is to be played, up to now, and declare it to the bus."""
        from pyarrow.compute import min_max

        plan = Plan()
        for batch in self._read(("offset", "subject", "schema", "schema_hash", "received_ns"),
                                on_fault):  # fmt: skip
            if self._is_stopped:
                break
            start_ns, end_ns = min_max(batch["received_ns"]).as_py().values()
            plan.start_ns = min(plan.start_ns, start_ns) if plan.messages else start_ns
            plan.end_ns = max(plan.end_ns, end_ns)
            plan.messages += batch.num_rows
            plan.last_offset = batch["offset"][-1].as_py()
            for topic, count in _count_topics(batch).items():
                plan.topics[topic] = plan.topics.get(topic, 0) + count
        for subject, schema in plan.topics:
            self._publisher(subject, schema)
        return plan

    def play(
        self,
        plan: Plan | None = None,
        *,
        is_looping: bool = False,
        before: Callable[[Recorded], bool] | None = None,
        on_progress: Callable[[Played], object] | None = None,
        on_fault: Callable[[str], object] | None = None,
    ) -> Played:
        """Publish everything; return what was done, also when `stop()` ended it.

        `before` is asked for each message, and False ends it; with it nothing waits to be due.
        """
        plan = plan or self.plan(on_fault)
        begin_ns: int | None = None
        while plan.messages and not self._is_stopped:
            with closing(Ahead(self._slices(plan, on_fault), _SLICES_AHEAD)) as slices:
                for messages in slices:
                    # Only now: opening files takes a while, which must not make the first late.
                    begin_ns = monotonic_ns() if begin_ns is None else begin_ns
                    for message in messages:
                        self._play_one(message, plan, begin_ns, before)
                        if self._is_stopped:
                            return self.played
                        if on_progress is not None:
                            on_progress(self.played)
            self.played.rounds += 1
            if not is_looping or begin_ns is None:
                break
            begin_ns += self._round_ns(plan)
        return self.played

    def _play_one(
        self, message: Recorded, plan: Plan, begin_ns: int,
        before: Callable[[Recorded], bool] | None,
    ) -> None:  # fmt: skip
        if before is None:
            self._wait_for(message, plan, begin_ns)
        elif not before(message):
            self.stop()
        if not self._is_stopped:
            self._publish(message)

    def stop(self) -> None:
        """End the playing at the next message; from any thread or signal handler."""
        self._is_stopped = True
        self._wake.put(None)

    @property
    def receivers(self) -> int:
        """Return how many other nodes want the subject that most of them want."""
        return max((one.receivers for one in self._publishers.values()), default=0)

    def flush(self, timeout_s: float) -> bool:
        """Wait until all receivers have everything; False: not in time."""
        return all(node.flush(timeout_s) for node in self._nodes)

    def close(self) -> None:
        """Publish no more, and close the nodes that were opened beside the given one."""
        for publisher in self._publishers.values():
            publisher.close()
        for node in self._nodes[1:]:
            node.close()

    def _round_ns(self, plan: Plan) -> int:
        """Return when the next round begins: as if the first message followed the last."""
        gap_ns = plan.span_ns // (plan.messages - 1) if plan.messages > 1 else SECOND
        if self._rate == AS_FAST_AS_POSSIBLE:
            return 0
        return int((plan.span_ns + gap_ns) / self._rate)

    def _wait_for(self, message: Recorded, plan: Plan, begin_ns: int) -> None:
        if self._rate == AS_FAST_AS_POSSIBLE:
            return
        due_ns = begin_ns + int((message.received_ns - plan.start_ns) / self._rate)
        left_ns = due_ns - monotonic_ns()
        if left_ns > 0:
            with suppress(Empty):
                self._wake.get(timeout=left_ns / SECOND)
        else:
            self.played.late_ns = max(self.played.late_ns, -left_ns)

    def _publish(self, message: Recorded) -> None:
        publisher = self._publisher(message.subject, message.schema)
        time_ns = message.published_ns & _HASH_MASK
        while not self._is_stopped:
            try:
                receivers = publisher.publish(message.payload, time_ns=time_ns)
            except Backpressure:
                continue  # Nothing of a recording is left out because somebody is slow.
            break
        else:
            return
        played = self.played
        played.messages += 1
        played.size_bytes += len(message.payload)
        played.position_ns = message.received_ns
        if receivers > played.receivers:
            played.receivers = receivers
        elif not receivers:
            played.unheard += 1

    def _publisher(self, subject: str, schema: Schema) -> Publisher:
        key = (subject, schema)
        publisher = self._publishers.get(key)
        if publisher is None:
            name = self._rename(subject)
            publisher = self._publishers[key] = self._open_publisher(name, schema)
        return publisher

    def _open_publisher(self, subject: str, schema: Schema) -> Publisher:
        reason = ""
        for node in self._nodes:
            try:
                return self._declare(node, subject, schema)
            except ConfigurationError as error:  # As another type, or by itself.
                reason = str(error)
        if self._open_another is None:
            raise ConfigurationError(f"{reason}; playing it needs another node: open_another=")
        self._nodes.append(self._open_another())
        return self._declare(self._nodes[-1], subject, schema)

    def _declare(self, node: Node, subject: str, schema: Schema) -> Publisher:
        """Publish as fast as possible means as fast as the slowest; in time means in time."""
        on_slow = "block" if self._rate == AS_FAST_AS_POSSIBLE else "drop"
        return node.publisher(subject, type=schema, replayed_ns=self.replayed_ns, on_slow=on_slow)

    def _slices(
        self, plan: Plan, on_fault: Callable[[str], object] | None
    ) -> Iterator[list[Recorded]]:
        """Yield the messages, some at a time: so many that making them holds up nobody."""
        for batch in self._read(_COLUMNS, on_fault):
            for start in range(0, batch.num_rows, _SLICE_MESSAGES):
                rows = _rows(batch.slice(start, _SLICE_MESSAGES))
                # What has a higher offset was recorded while we play.
                yield [row for row in rows if row.offset <= plan.last_offset]
                if rows[-1].offset >= plan.last_offset:
                    return

    def _read(
        self, columns: Iterable[str], on_fault: Callable[[str], object] | None
    ) -> Iterator[Any]:
        from hubbub.store.reading import refuse

        return self._store.messages(  # type: ignore[no-any-return]
            self._subjects, self._start, self._end, list(columns), on_fault or refuse
        )


def _open_store(store: str | Path) -> Any:
    from hubbub.store import Store

    return Store(store)


def _rows(batch: Any) -> list[Recorded]:
    offsets, subjects, names, hashes, payloads, published, received = (
        batch[name].to_pylist() for name in _COLUMNS
    )
    schemas = map(_schema, names, hashes)
    return list(map(Recorded, offsets, subjects, schemas, payloads, published, received))


def _count_topics(batch: Any) -> dict[tuple[str, Schema], int]:
    from pyarrow import Table

    counts: dict[tuple[str, Schema], int] = {}
    groups = Table.from_batches([batch]).group_by(["subject", "schema", "schema_hash"])
    for group in groups.aggregate([([], "count_all")]).to_pylist():
        key = (group["subject"], _schema(group["schema"], group["schema_hash"]))
        counts[key] = counts.get(key, 0) + group["count_all"]
    return counts


def _schema(name: str | None, number: int | None) -> Schema:
    """Return the type of a message as its publisher declared it."""
    return Schema(name, number & _HASH_MASK) if name and number else Schema()

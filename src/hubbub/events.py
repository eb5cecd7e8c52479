"""What the bus reports besides messages: frozen values, each printing as one readable line.

An event is never the only trace of something: the counters of `statistics()` count the same facts.
Structs of msgspec, as messages are: 25 dataclasses cost 30 ms of every start.
"""

from msgspec import Struct

from hubbub.errors import HubbubError
from hubbub.message import Source


class Event(Struct, frozen=True):
    """The root of all events; `isinstance` tells which one it is."""

    channel: str


def _line(text: str) -> str:
    """Write what others have worded as a part of one line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class PeerJoined(Event, frozen=True):
    """Another node is here. Replayed to listeners that come later."""

    peer: Source
    host: str
    pid: int
    address: str
    uptime_s: int = 0
    """For how many full seconds it had been open when we met it."""

    def __str__(self) -> str:
        place = f"pid {self.pid} on {self.host}, {self.address}"
        return f"peer joined: {self.peer} ({place}) on {self.channel}"


class PeerLeft(Event, frozen=True):
    """A node is gone; `reason` is `closed`, `timeout`, `died` (killed) or `restarted`."""

    peer: Source
    reason: str
    host: str = ""
    pid: int = 0
    address: str = ""

    def __str__(self) -> str:
        return f"peer left: {self.peer}, {self.reason}, on {self.channel}"


class SubscriberMatched(Event, frozen=True):
    """Another node wants a subject that is published here. Replayed to listeners that come later.

    The listener of a publisher hears of its own subject only.
    """

    subscriber: Source
    subject: str

    def __str__(self) -> str:
        return f"subscriber matched: {self.subscriber} wants {self.subject} on {self.channel}"


class SubscriberUnmatched(Event, frozen=True):
    """A subscriber is gone: it closed, unsubscribed, died or was lost."""

    subscriber: Source
    subject: str

    def __str__(self) -> str:
        return f"subscriber unmatched: {self.subscriber} of {self.subject} on {self.channel}"


class PublisherMatched(Event, frozen=True):
    """Another node publishes a subject that is wanted here. Replayed to listeners that come later.

    The listener of a subscription hears of what matches its own patterns only. `schema` is the name
    of the type, empty for plain bytes.
    """

    publisher: Source
    subject: str
    schema: str
    is_reliable: bool

    def __str__(self) -> str:
        what = f" of {self.schema}" if self.schema else ""
        how = "" if self.is_reliable else ", best effort,"
        who = f"{self.publisher} publishes {self.subject}{what}{how}"
        return f"publisher matched: {who} on {self.channel}"


class PublisherUnmatched(Event, frozen=True):
    """A publisher is gone: it was closed, its node left, died or was lost."""

    publisher: Source
    subject: str

    def __str__(self) -> str:
        return f"publisher unmatched: {self.publisher} of {self.subject} on {self.channel}"


class GapAbandoned(Event, frozen=True):
    """Messages that were owed to us will not come; each hole is reported exactly once.

    `subject`, `first` and `last` name the lost messages. When the publisher died before it could
    say what was in a lost frame, `subject` is None and `first..last` are frame numbers. Reasons:
    `not_available`, `given_up`, `publisher_gone`, `too_slow`, `expired`, `no_memory`, `resync`,
    `nagging`.
    """

    publisher: Source
    subject: str | None
    first: int
    last: int
    reason: str

    def __str__(self) -> str:
        what = "frames" if self.subject is None else f"messages of {self.subject}"
        span = f"{self.first}..{self.last}"
        return f"gap abandoned: {what} {span} from {self.publisher}, {self.reason}"


class SlowConsumer(Event, frozen=True):
    """Somebody could not keep up: a subscription that dropped, or a receiver left behind.

    On the subscriber's side `subscription` names its patterns, and `ranges` holds what its policy
    dropped in the last second as (subject, source, first, last). On the publisher's side `peer` is
    the receiver that no longer holds back the group (policy `left_behind`), or that did not
    acknowledge a message in time (policy `unacknowledged`).
    """

    policy: str
    dropped: int
    subscription: str = ""
    ranges: tuple[tuple[str, Source, int, int], ...] = ()
    peer: Source | None = None

    def __str__(self) -> str:
        if self.policy == "unacknowledged":
            return f"slow consumer: {self.peer} did not acknowledge in time on {self.channel}"
        if self.peer is not None:
            return f"slow consumer: {self.peer} no longer holds back the group on {self.channel}"
        holes = ", ".join(
            f"{subject} {first}..{last}" for subject, _, first, last in self.ranges[:4]
        )
        more = f" and {len(self.ranges) - 4} more" if len(self.ranges) > 4 else ""
        who = f"{self.subscription} ({self.policy})"
        return f"slow consumer: {who} dropped {self.dropped}: {holes}{more}"


class Nagging(Event, frozen=True):
    """This node has been asking for repairs without a pause; `policy` says what it does now."""

    requests: int
    seconds: float
    policy: str

    def __str__(self) -> str:
        return (
            f"nagging: {self.requests} repair requests in {self.seconds:.3g} s"
            f" without a quiet window on {self.channel}, {self.policy}"
        )


class CallbackFailed(Event, frozen=True):
    """A callback of the application raised; the message counts as delivered."""

    subscription: str
    subject: str
    error: BaseException

    def __str__(self) -> str:
        return f"callback failed: {self.subscription} on {self.subject}: {_line(repr(self.error))}"


class PayloadRejected(Event, frozen=True):
    """Payloads did not decode as the type of a subscription; these messages were skipped.

    `ranges` holds what was skipped in the last second as (subject, source, first, last), `error`
    what was wrong with the first of them.
    """

    subscription: str
    rejected: int
    ranges: tuple[tuple[str, Source, int, int], ...]
    error: str

    def __str__(self) -> str:
        why = _line(str(self.error))
        return f"payload rejected: {self.subscription} skipped {self.rejected}: {why}"


class SchemaMismatch(Event, frozen=True):
    """A publisher's type is not the one this subscription decodes; its messages are skipped."""

    publisher: Source
    subject: str
    expected: str
    announced: str

    def __str__(self) -> str:
        return (
            f"schema mismatch: {self.publisher} publishes {_line(self.announced)} on"
            f" {self.subject}, this subscription decodes {self.expected}"
        )


class NoCommonLink(Event, frozen=True):
    """Nothing of a subject is sent to or from a node: no link there that both sides allow.

    `published` is what the publisher insists on and `wanted` what the subscription does; none: any
    link. `is_hopeless`: they have none in common, or the nodes have not. Else none is open.
    """

    peer: Source
    subject: str
    published: tuple[str, ...]
    wanted: tuple[str, ...]
    is_publisher: bool
    """Whether the peer publishes the subject; else it subscribes to it."""
    is_hopeless: bool

    def __str__(self) -> str:
        published = " or ".join(self.published) or "any link"
        wanted = " or ".join(self.wanted) or "any link"
        why = "which they have not in common" if self.is_hopeless else "and no such link is open"
        role = "publisher" if self.is_publisher else "subscriber"
        return (
            f"no common link: {self.subject} is published over {published} and wanted over"
            f" {wanted}, {why} with {role} {self.peer}, so nothing is sent on {self.channel}"
        )


class VersionMismatch(Event, frozen=True):
    """A node speaks another major version of the protocol and is not heard; once a source."""

    address: str
    version: int

    def __str__(self) -> str:
        what = f"{self.address} speaks protocol version {self.version}"
        return f"version mismatch: {what} on {self.channel}"


class PeerRefused(Event, frozen=True):
    """A connection by TCP was refused: of somebody who may not call, or cannot prove who it is.

    Of the same address and reason, at most one event in ten seconds; `refused` in the statistics
    of TCP counts all.
    """

    address: str
    reason: str

    def __str__(self) -> str:
        return f"peer refused: {self.address}, {self.reason}, on {self.channel}"


class Starved(Event, frozen=True):
    """The I/O thread was kept from running: other threads of this process held the interpreter."""

    late_ms: float

    def __str__(self) -> str:
        why = "a busy thread holds the interpreter"
        return f"starved: the I/O thread ran {self.late_ms:.0f} ms late ({why})"


class LinkDown(Event, frozen=True):
    """The interface of a channel is gone or refuses to send."""

    interface: str
    reason: str

    def __str__(self) -> str:
        return f"link down: {self.interface} on {self.channel}: {self.reason}"


class LinkUp(Event, frozen=True):
    """The interface of a channel works again."""

    interface: str

    def __str__(self) -> str:
        return f"link up: {self.interface} on {self.channel}"


class DeadlineMissed(Event, frozen=True):
    """Slots of a consumer stayed empty: no sample of a producer came for them in time.

    `slots` is how many since the last such event. `is_lost` says that the producer was silent for
    so long, or has left, that it is not waited for any more.
    """

    producer: Source
    port: int
    subject: str
    period_ms: float
    slots: int
    is_lost: bool

    def __str__(self) -> str:
        who = f"{self.producer} port {self.port}"
        end = ", which is gone" if self.is_lost else ""
        slots = "1 slot" if self.slots == 1 else f"{self.slots} slots"
        what = f"{slots} of {self.period_ms:g} ms of {self.subject}"
        return f"deadline missed: {what} from {who}{end} on {self.channel}"


class NothingProduced(Event, frozen=True):
    """For a second, or two periods, a consumer has had no producer: none yet, or none any more.

    Told once; `ConsumerStatistics.vacant` counts the slots until there is one.
    """

    subject: str
    period_ms: float

    def __str__(self) -> str:
        how = f"each {self.period_ms:g} ms" if self.period_ms else "once"
        what = f"{self.subject}, which is wanted {how}"
        return f"nothing produced: nobody makes {what}, on {self.channel}"


class PeriodGranted(Event, frozen=True):
    """A producer serves a consumer no faster than this, though it asked for more."""

    producer: Source
    port: int
    subject: str
    asked_ms: float
    granted_ms: float

    def __str__(self) -> str:
        who = f"{self.producer} port {self.port}"
        what = f"{self.subject} each {self.granted_ms:g} ms instead of {self.asked_ms:g} ms"
        return f"period granted: {who} makes {what} on {self.channel}"


class InterestRefused(Event, frozen=True):
    """A producer cannot serve interests as they are; at most one event a second.

    `reason` is `floor` (the period is shorter than it may be, and a longer one is granted), `full`
    (there are too many interests) or `once` (a strict producer makes samples at its ticks alone).
    """

    subject: str
    refused: int
    asked_ms: float
    granted_ms: float
    reason: str

    def __str__(self) -> str:
        how = f"{self.refused} times, last for {self.asked_ms:g} ms"
        what = f"{self.subject} each {self.granted_ms:g} ms at best"
        return f"interest refused: {how}, {self.reason}: {what} on {self.channel}"


class DataTypeMismatch(Event, frozen=True):
    """Another node means something else by the number of a type, or knows a subject by another.

    Neither is served what it did not ask for. At most one event a second for each.
    """

    peer: Source
    subject: str
    data_type: int
    peer_subject: str
    peer_data_type: int

    def __str__(self) -> str:
        theirs = f"{self.peer_data_type} is {self.peer_subject} at {self.peer}"
        ours = f"{self.data_type} is {self.subject} here"
        return f"data type mismatch: {theirs}, {ours}: register_data_type alike on {self.channel}"


class TicksSkipped(Event, frozen=True):
    """A producer did not get round to some ticks: sampling took too long, or we did not run."""

    subject: str
    skipped: int

    def __str__(self) -> str:
        return f"ticks skipped: {self.skipped} of {self.subject} on {self.channel}"


class SampleFailed(Event, frozen=True):
    """The function that makes the samples of a producer raised, or made what cannot be sent."""

    subject: str
    error: BaseException

    def __str__(self) -> str:
        why = str(self.error) if isinstance(self.error, HubbubError) else repr(self.error)
        return f"sample failed: {self.subject}: {_line(why)}"


class ClockStepped(Event, frozen=True):
    """The clock that ticks are on was set; slots are counted anew."""

    by_ms: float
    era: int

    def __str__(self) -> str:
        return f"clock stepped: by {self.by_ms:g} ms, era {self.era} begins on {self.channel}"


class ServiceUnavailable(Event, frozen=True):
    """A message was published in a service that nobody subscribes to, or no manager took it."""

    service: str
    reason: str

    def __str__(self) -> str:
        return f"service unavailable: {self.service}, {self.reason}"


class ManagerChanged(Event, frozen=True):
    """A service that this node subscribes to has a manager, or another one than before.

    `epoch` counts them.
    """

    service: str
    manager: Source
    epoch: int

    def __str__(self) -> str:
        return f"manager changed: {self.service} is managed by {self.manager}, epoch {self.epoch}"


class Closed(Event, frozen=True):
    """This channel is closed: the last event of it."""

    reason: str

    def __str__(self) -> str:
        return f"closed: {self.channel}, {self.reason}"

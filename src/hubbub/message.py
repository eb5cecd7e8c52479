"""HOT. What a subscriber holds in the hand.

Structs of msgspec, because `map(Message, ...)` makes one in 0.13 us, against 0.25 us for a named
tuple and 0.5 us for a frozen dataclass, and because the garbage collector need not look at them: it
took a quarter of a busy subscriber's time. A message is tracked only if its payload or context can
be part of a cycle; a source never is.
"""

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any

from msgspec import Struct


class Source(Struct, frozen=True, gc=False):
    """Who published a message."""

    name: str
    id: bytes
    incarnation: int

    def __str__(self) -> str:
        """Write the name and enough of the id to tell two nodes of one name apart."""
        return f"{self.name}#{self.id.hex()[:6]}"


class Passage(Struct, frozen=True, gc=False):
    """How a message came: by which link, and for whom its frame was."""

    link: str
    receiver: int
    receivers_bitmap: int


class Tick(Passage, frozen=True, gc=False):
    """How a sample came, and the tick that it was made for.

    `period_ns` is the shortest period that its producer serves, `port` that of the producer; `era`
    changes when its clock steps.
    """

    tick_ns: int
    period_ns: int
    port: int
    era: int
    is_synchronised: bool


class Served(Passage, frozen=True, gc=False):
    """How a message of a service came: in which service, and how often that changed managers."""

    service: str
    epoch: int


class Message(Struct, frozen=True):
    """One message, as published, with what the bus knows about its way.

    `payload` is `bytes`, or a read-only memoryview where it lies in memory shared with a publisher
    on this host (or, with `type=`, the decoded value). `sequence` counts the messages of this
    subject at this source. `published_ns` is the publisher's wall clock, `received_ns` ours.
    `context` is what was given to `subscribe()`. `passage` is shared by all messages of a frame:
    `link`, `receiver` and `receivers_bitmap` look there, so that they cost nothing until then.
    """

    subject: str
    payload: Any
    source: Source
    sequence: int
    published_ns: int
    received_ns: int
    passage: Passage | str
    context: Any

    @property
    def replayed_ns(self) -> int | None:
        """Return when somebody began to play the recording it comes from; None: it is no replay.

        Its `published_ns` is that of the original.
        """
        return None

    @property
    def is_replayed(self) -> bool:
        """Tell whether it comes from a recording that is played again."""
        return self.replayed_ns is not None

    @property
    def link(self) -> str:
        """Return by which link it came."""
        passage = self.passage
        return passage if isinstance(passage, str) else passage.link

    @property
    def tick_ns(self) -> int | None:
        """Return the nominal time of a sample; None: this is no sample of a producer."""
        passage = self.passage
        return passage.tick_ns if isinstance(passage, Tick) else None

    @property
    def period_ns(self) -> int | None:
        """Return the shortest period that its producer serves; None: this is no sample."""
        passage = self.passage
        return passage.period_ns if isinstance(passage, Tick) else None

    @property
    def port(self) -> int | None:
        """Return the port of its producer; None: this is no sample."""
        passage = self.passage
        return passage.port if isinstance(passage, Tick) else None

    @property
    def receiver(self) -> int | None:
        """Return the index of the only node that its frame was for; -1: of many, or not known.

        None: it came in no frame, but from this process itself.
        """
        passage = self.passage
        return None if isinstance(passage, str) else passage.receiver

    @property
    def receivers_bitmap(self) -> int | None:
        """Return bit i for each node of index i that its frame was for; None: it came in none."""
        passage = self.passage
        return None if isinstance(passage, str) else passage.receivers_bitmap


class ReplayedMessage(Message, frozen=True):
    """A message of a recording that is played again; a class of its own costs the others nothing.

    Its sequence and source are those of who plays it.
    """

    replayed_ns: int


class Batch(Struct, frozen=True):
    """Consecutive messages of one subject and source, in order, as they came in one frame.

    `first` is the sequence of the first one, `published_ns` has a time for each payload, the rest
    is the same for all. Iterating makes a `Message` of each.
    """

    subject: str
    payloads: Sequence[Any]
    source: Source
    first: int
    published_ns: Sequence[int]
    received_ns: int
    passage: Passage | str
    context: Any
    replayed_ns: int | None = None

    def __len__(self) -> int:
        """Return how many messages there are."""
        return len(self.payloads)

    def __iter__(self) -> Iterator[Message]:
        """Turn the payloads into messages, each when it is asked for."""
        return make_messages(self, iter(self.payloads))


def make_messages(batch: Batch, payloads: Iterator[Any]) -> Iterator[Message]:
    """Make a message of each payload of a batch at the speed of C."""
    count = len(batch.payloads)
    assert len(batch.published_ns) == count
    columns = (
        repeat(batch.subject),
        payloads,
        repeat(batch.source),
        range(batch.first, batch.first + count),
        batch.published_ns,
        repeat(batch.received_ns),
        repeat(batch.passage),
        repeat(batch.context),
    )
    if batch.replayed_ns:
        return map(ReplayedMessage, *columns, repeat(batch.replayed_ns))
    return map(Message, *columns)


def gather(messages: Sequence[Message]) -> Batch:
    """Make a batch of consecutive messages of one subject and source."""
    first = messages[0]
    return Batch(
        first.subject,
        [message.payload for message in messages],
        first.source,
        first.sequence,
        [message.published_ns for message in messages],
        first.received_ns,
        first.passage,
        first.context,
        first.replayed_ns,
    )

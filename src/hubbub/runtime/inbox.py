"""HOT. The queue of a subscription: runs of messages, bounded in messages.

The node puts runs in, one at a time; any number of readers take messages out. A message of a run
becomes an object only when a reader takes it: `current` makes it, in C, so that readers take from
it without a lock, and `operator.length_hint` of the payloads it takes says in O(1) what remains.
Made one by one they are found in the processor's cache and freed before the next is made.

Invariants:
- `current` is replaced only when it is exhausted, under the lock, so nothing is skipped and every
  reader sees each topic in order.
- Each counter has one writer (`accepted`: who puts; the others: who holds the lock), so none needs
  a lock to be read, and `pending` can only be seen too large, never too small. Before anything is
  dropped it is computed again under the lock.
- Readers never wait for who puts, unless something has to be dropped.

Why not one deque of messages: it would cost an object and an append per message in the I/O thread.
"""

import threading
from collections import deque
from collections.abc import Iterator
from operator import length_hint
from typing import Any, Final

from hubbub.message import Batch, Message, gather, make_messages
from hubbub.protocol.delivery import Delivery
from hubbub.runtime.tally import Tally

_NOTHING: Final[list[Any]] = []

Run = tuple[Delivery, Any]


class Inbox:
    """Hold runs until readers take their messages; drop by a rule when there are too many."""

    def __init__(self, limit: int) -> None:
        self.current: Iterator[Message] = iter(_NOTHING)
        self._left: Iterator[bytes] = iter(_NOTHING)  # The payloads that `current` has not taken.
        self.runs: deque[Run] = deque()
        self.accepted = 0
        self.discarded = 0
        self.drops = Tally()
        self.limit = limit
        self._taken = 0  # Messages that left `runs` for `current`, or for good.
        self._lock = threading.Lock()

    @property
    def pending(self) -> int:
        """Return how many messages nobody has taken yet."""
        return self.accepted - self._taken + length_hint(self._left)

    def put(self, delivery: Delivery, context: Any) -> bool:
        """Queue a run if it fits; the caller decides what to drop if not."""
        accepted = self.accepted + len(delivery.payloads)
        if accepted - self._taken + length_hint(self._left) > self.limit:
            return False
        self.accepted = accepted  # First: a reader may take the run before this thread goes on.
        self.runs.append((delivery, context))
        return True

    def take(self) -> Message | None:
        """Return the next message, or None if there is none."""
        message = next(self.current, None)
        if message is not None or not self.runs:
            return message
        with self._lock:
            message = next(self.current, None)  # Another reader may have been here first.
            if message is None and self.runs:
                return self._open_run()
            return message

    def take_batch(self) -> Batch | None:
        """Return the next run, or what is left of it; None if there is none."""
        if not self.runs and not length_hint(self._left):
            return None
        with self._lock:
            begun = list(self.current)
            if begun:
                return gather(begun)
            if not self.runs:
                return None  # Another reader was here first.
            delivery, context = self.runs.popleft()
            self._taken += len(delivery.payloads)
            return _batch_of(delivery, context)

    def put_dropping_newest(self, delivery: Delivery, context: Any) -> int:
        """Queue what fits of a run, drop the rest; return how many were dropped."""
        with self._lock:
            room = max(0, self.limit - self.pending)
            head, tail = _split(delivery, room)
            self._append(head, context)
            return self._drop(tail)

    def put_dropping_oldest(self, delivery: Delivery, context: Any) -> int:
        """Queue a run and drop the oldest messages beyond the limit; return how many."""
        with self._lock:
            dropped = 0
            self._append(delivery, context)
            while (excess := self.pending - self.limit) > 0:
                dropped += self._drop_oldest(excess)
            return dropped

    def discard(self) -> None:
        """Throw everything away; also what a reader in the middle of a run has not reached yet."""
        with self._lock:
            self.discarded += sum(1 for _ in self.current)
            while self.runs:
                self.discarded += self._pop_run()

    def forked(self) -> None:
        """Replace the lock: the thread that held it may not exist in this process."""
        self._lock = threading.Lock()
        self.drops.forked()

    def _open_run(self) -> Message | None:
        """Turn the oldest run into messages and return the first."""
        delivery, context = self.runs.popleft()
        count = len(delivery.payloads)
        if count == 1:
            # Kept nowhere: a large message must not live until the next one is taken.
            self._taken += 1
            return message_of_one(delivery, context)
        self._left = iter(delivery.payloads)
        self.current = make_messages(_batch_of(delivery, context), self._left)
        self._taken += count
        return next(self.current, None)

    def _append(self, delivery: Delivery, context: Any) -> None:
        count = len(delivery.payloads)
        if count:
            self.accepted += count
            self.runs.append((delivery, context))

    def _drop(self, delivery: Delivery) -> int:
        """Count a run as dropped."""
        count = len(delivery.payloads)
        if count:
            self.drops.add(delivery.topic.subject, delivery.topic.source, delivery.first, count)
        return count

    def _drop_oldest(self, excess: int) -> int:
        """Drop at most `excess` messages, of the opened run before the oldest; return how many."""
        message = next(self.current, None)
        if message is not None:
            self.drops.add(message.subject, message.source, message.sequence, 1)
            return 1
        delivery, context = self.runs.popleft()
        head, tail = _split(delivery, excess)
        dropped = self._drop(head)
        self._taken += dropped
        if tail.payloads:
            self.runs.appendleft((tail, context))
        return dropped

    def _pop_run(self) -> int:
        """Remove the oldest run; return how many messages it had."""
        count = len(self.runs.popleft()[0].payloads)
        self._taken += count
        return count


def _batch_of(delivery: Delivery, context: Any) -> Batch:
    topic, first, payloads, published_ns, received_ns, link = delivery
    return Batch(
        topic.subject, payloads, topic.source, first, published_ns, received_ns, link, context,
        topic.replayed_ns or None,
    )  # fmt: skip


def message_of_one(delivery: Delivery, context: Any) -> Message:
    """Turn a run of one message into that message."""
    topic, first, payloads, published_ns, received_ns, link = delivery
    if topic.replayed_ns:
        return next(iter(_batch_of(delivery, context)))
    return Message(
        topic.subject,
        payloads[0],
        topic.source,
        first,
        published_ns[0],
        received_ns,
        link,
        context,
    )


def _split(delivery: Delivery, at: int) -> tuple[Delivery, Delivery]:
    """Cut a run in two; either may be empty."""
    payloads, published_ns = delivery.payloads, delivery.published_ns
    head = delivery._replace(payloads=payloads[:at], published_ns=published_ns[:at])
    tail = delivery._replace(
        first=delivery.first + at, payloads=payloads[at:], published_ns=published_ns[at:]
    )
    return head, tail

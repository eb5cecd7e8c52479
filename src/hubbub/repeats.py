"""Messages that may be published again: each subscription takes them once.

A task of Spark that failed is run again, and publishes again what it had published before it
failed. Its node tells by its id which task it works for: a mark, a digest of the task's name, and
two random bytes, by which two nodes that work for the same task at once stay two. The n-th message
of the task on a subject has the sequence n, every time. So who remembers how far a task has come
on a subject knows what it need not hand out again, by whichever node it comes.

Other nodes cost nothing: whether an id has the mark is asked when a topic is matched.
"""

import os
from collections import OrderedDict
from hashlib import blake2b
from threading import Lock
from typing import Final

from hubbub.limits import REPEATABLE_TOPICS_MAX
from hubbub.protocol.delivery import Delivery

MARK: Final = b"\xf5\x9e\xa7"
TASK_BYTES: Final = 10  # The mark and the digest.
_DIGEST_BYTES: Final = TASK_BYTES - len(MARK)
_RANDOM_BYTES: Final = 2


def repeatable_id(task: str) -> bytes:
    """Make the id of a node that publishes for a task: give it to `hubbub.open(node_id=)`."""
    digest = blake2b(task.encode(), digest_size=_DIGEST_BYTES).digest()
    return MARK + digest + os.urandom(_RANDOM_BYTES)


def is_repeatable(node_id: bytes) -> bool:
    """Tell whether a node publishes for a task that may be run again."""
    return node_id.startswith(MARK)


class Repeats:
    """How far each task has come on each subject, for one pattern of a subscription."""

    def __init__(self) -> None:
        self._lock = Lock()  # Nodes of this process and of others may publish at once.
        self._next: OrderedDict[tuple[bytes, str], int] = OrderedDict()

    def pass_new(self, delivery: Delivery) -> Delivery | None:
        """Return what of a run did not come before; None: all of it did."""
        key = (delivery.topic.source.id[:TASK_BYTES], delivery.topic.subject)
        with self._lock:
            old = max(self._next.get(key, 0) - delivery.first, 0)
            if old >= len(delivery.payloads):
                return None
            self._next[key] = delivery.first + len(delivery.payloads)
            self._next.move_to_end(key)
            if len(self._next) > REPEATABLE_TOPICS_MAX:
                self._next.popitem(last=False)
        if not old:
            return delivery
        return delivery._replace(
            first=delivery.first + old,
            payloads=delivery.payloads[old:],
            published_ns=delivery.published_ns[old:],
        )

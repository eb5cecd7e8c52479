"""What a topic keeps for those who come later: its newest messages, bounded in number and bytes."""

from collections import deque
from collections.abc import Sequence
from itertools import islice

from hubbub.limits import HISTORY_BYTES_MAX

Kept = tuple[bytes, int]


class History:
    """The newest messages of a topic, each with its publish time; they end with its newest."""

    __slots__ = ("count_max", "messages", "size_bytes")

    def __init__(self, count_max: int) -> None:
        assert count_max > 0
        self.count_max = count_max
        self.messages: deque[Kept] = deque()
        self.size_bytes = 0

    def add(self, payloads: Sequence[bytes | memoryview], published_ns: Sequence[int]) -> None:
        """Keep a run of messages, and forget what is too much."""
        messages = self.messages
        # Bytes of its own: views would keep memory that is shared, and may be lent for now only.
        messages.extend(zip(map(bytes, payloads), published_ns, strict=True))
        self.size_bytes += sum(map(len, payloads))
        while len(messages) > self.count_max or (
            self.size_bytes > HISTORY_BYTES_MAX and len(messages) > 1
        ):
            self.size_bytes -= len(messages.popleft()[0])

    def newest(self, count: int) -> list[Kept]:
        """Return the newest so many; 0: all that is kept."""
        skipped = max(len(self.messages) - count, 0) if count else 0
        return list(islice(self.messages, skipped, None))

"""What the core hands to a link: one or several frames that go out in one system call."""

from typing import Any, NamedTuple

Address = tuple[Any, ...]


class Burst(NamedTuple):
    """Frames back to back; all but the last are `segment_bytes` long (0: there is only one)."""

    destination: Address | None  # None: the group
    buffers: list[bytes | memoryview]
    segment_bytes: int

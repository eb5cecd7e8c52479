"""What the core hands to a link: one or several frames that go out in one system call."""

from typing import Any, NamedTuple

Address = tuple[Any, ...]


class Pipes(tuple[bytes, ...]):
    """Where frames go, or came from, that take pipes: the keys of the nodes at the other ends.

    A pipe is a link between two nodes that loses nothing while it lasts. It carries the very frames
    that the group would, so what is lost with a pipe is repaired by other links like any loss.
    """

    __slots__ = ()


class Burst(NamedTuple):
    """Frames back to back; all but the last are `segment_bytes` long (0: there is only one)."""

    destination: Address | None  # None: the group
    buffers: list[bytes | memoryview]
    segment_bytes: int

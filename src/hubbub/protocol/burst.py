"""What the core hands to a link: one or several frames that go out in one system call."""

from typing import Any, ClassVar, NamedTuple

from hubbub.protocol.delivery import LOCAL, TCP

Address = tuple[Any, ...]


class Pipes(tuple[bytes, ...]):
    """Where frames go, or came from, that take pipes: the keys of the nodes at the other ends.

    A pipe is a link between two nodes that loses nothing while it lasts. It carries the very frames
    that the group would, so what is lost with a pipe is repaired by other links like any loss.
    """

    __slots__ = ()

    link: ClassVar[str] = LOCAL
    is_near: ClassVar[bool] = True  # All on this host: large payloads can be shared.
    has_group: ClassVar[bool] = False
    place = "this host"


class FarPipes(Pipes):
    """The same where at least one pipe leads by TCP to elsewhere, or where one came from there."""

    link = TCP
    is_near = False
    place: str


class GroupAndPipes(FarPipes):
    """The group, and by pipes those whom it may not reach."""

    has_group = True


def place_of(address: Address) -> str:
    """Name where somebody is, for people."""
    return address.place if isinstance(address, Pipes) else f"{address[0]}:{address[1]}"


class Burst(NamedTuple):
    """Frames back to back; all but the last are `segment_bytes` long (0: there is only one)."""

    destination: Address | None  # None: the group
    buffers: list[bytes | memoryview]
    segment_bytes: int

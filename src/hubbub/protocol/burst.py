"""What the core hands to a link: one or several frames that go out in one system call."""

from collections.abc import Iterable
from typing import Any, ClassVar, Final, NamedTuple

from hubbub.protocol.delivery import LOCAL, TCP

Address = tuple[Any, ...]


class Straight(tuple[Any, ...]):
    """An address from which something came to us alone, and not by the group; equal to any such."""

    __slots__ = ()


class Pipes(tuple[bytes, ...]):
    """Where frames go, or came from, that take pipes: the keys of the nodes at the other ends.

    A pipe is a link between two nodes that loses nothing while it lasts. It carries the very frames
    that the group would, so what is lost with a pipe is repaired by other links like any loss. Two
    of different kinds are not the same, though they lead to the same nodes: they are other links.
    """

    __slots__ = ()

    link: ClassVar[str] = LOCAL
    is_near: ClassVar[bool] = True  # All on this host: large payloads can be shared.
    has_group: ClassVar[bool] = False
    addresses: tuple[Address, ...] = ()  # Where the same goes by datagrams.
    place = "this host"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__


class FarPipes(Pipes):
    """The same where at least one pipe leads by TCP to elsewhere, or where one came from there."""

    link = TCP
    is_near = False
    place: str


class GroupAndPipes(FarPipes):
    """The group, and by pipes those whom it may not reach."""

    has_group = True


class ChosenPipes(FarPipes):
    """Some by pipes of this host and some by TCP, as links were chosen; others by the group.

    Others again have an address each, for a datagram of their own.
    """

    near: Pipes
    far: Pipes
    has_group: bool  # type: ignore[misc]

    def __new__(
        cls, near: Iterable[bytes] = (), far: Iterable[bytes] = (), *, has_group: bool = False,
        addresses: Iterable[Address] = (),
    ) -> "ChosenPipes":  # fmt: skip
        """Say who is reached how."""
        near, far = Pipes(near), Pipes(far)  # Ready to be handed to their links.
        chosen = super().__new__(cls, near + far)
        chosen.near, chosen.far, chosen.has_group = near, far, has_group
        chosen.addresses = tuple(addresses)
        return chosen

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChosenPipes) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(self._parts)

    @property
    def _parts(self) -> tuple[object, ...]:
        return self.near, self.far, self.has_group, self.addresses


NOWHERE: Final = ChosenPipes()


def place_of(address: Address) -> str:
    """Name where somebody is, for people."""
    return address.place if isinstance(address, Pipes) else f"{address[0]}:{address[1]}"


class Burst(NamedTuple):
    """Frames back to back; all but the last are `segment_bytes` long (0: there is only one)."""

    destination: Address | None  # None: the group
    buffers: list[bytes | memoryview]
    segment_bytes: int

"""What a gateway hands to components, and what it counts."""

from bisect import insort
from dataclasses import dataclass
from typing import Any, NamedTuple

from hubbub.message import Source
from hubbub.wire.timed import Response, split_origin

_SEEN_BITS = 64
_SEEN_MASK = (1 << _SEEN_BITS) - 1


class Sample(NamedTuple):
    """A response as consumers get it: one object for all of them."""

    response: Response
    source: Source
    received_ns: int
    link: str
    wrapped: list[Any]  # Of the shell: what it made of this one, for all consumers.

    @property
    def port(self) -> int:
        """Return the port of the producer."""
        return split_origin(self.response.origin)[1]


class Discarded(NamedTuple):
    """A sample that a consumer did not take, and why."""

    reason: str  # As `slots` and `sieve` have it.
    subject: str
    origin: bytes
    sequence: int


class Letter(NamedTuple):
    """A direct message as a component gets it."""

    source: Source
    port: int
    payload: bytes
    received_ns: int


@dataclass(slots=True)
class GatewayTally:
    """What became of the frames at a gateway."""

    heard: int = 0
    relayed: int = 0  # Frames that were passed on inside.
    handed: int = 0  # To components: at least one each.
    taken: int = 0  # By consumers, as the sample of a slot.
    unwanted: int = 0  # Of types that no component is concerned with.
    duplicates: int = 0
    own: int = 0
    refused_port: int = 0
    refused_hops: int = 0
    mismatched: int = 0  # Of a type that is another subject here, or a subject of another type.
    sent: int = 0


class Seen:
    """Which frames of one origin were here: the newest, and a window before it."""

    __slots__ = ("_before", "_newest")

    def __init__(self) -> None:
        self._newest = -1
        self._before = 0

    def is_new(self, sequence: int) -> bool:
        """Tell whether a frame was not here before; from now on it was."""
        ahead = sequence - self._newest
        if ahead > 0:
            is_near = ahead <= _SEEN_BITS
            before = self._before << ahead | 1 << (ahead - 1) if is_near else 0
            self._newest, self._before = sequence, before & _SEEN_MASK
            return True
        if not 0 < -ahead <= _SEEN_BITS or self._before >> (-ahead - 1) & 1:
            return False
        self._before |= 1 << (-ahead - 1)
        return True


class Numbers:
    """Which frames of one peer were here that are numbered with holes: the last ones.

    One that is older than all of these was here, or has been overtaken by as many.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: list[int] = []  # In order.

    def is_new(self, number: int) -> bool:
        """Tell whether a frame was not here before; from now on it was."""
        last = self._last
        if number in last or (len(last) == _SEEN_BITS and number < last[0]):
            return False
        insort(last, number)
        del last[:-_SEEN_BITS]
        return True

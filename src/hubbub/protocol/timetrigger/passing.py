"""What a gateway hands to components, and what it counts."""

from dataclasses import dataclass
from typing import NamedTuple

from hubbub.message import Source
from hubbub.wire.timed import Response, split_origin

_SEEN_BITS = 64


class Sample(NamedTuple):
    """A response as consumers get it: one object for all of them."""

    response: Response
    source: Source
    received_ns: int
    link: str

    @property
    def port(self) -> int:
        """Return the port of the producer."""
        return split_origin(self.response.origin)[1]


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
    sent: int = 0


class Seen:
    """Which frames of which origins were here: the newest, and a window before it."""

    def __init__(self, origins_max: int) -> None:
        self._origins_max = origins_max
        self._seen: dict[tuple[bytes, int], tuple[int, int]] = {}

    def is_new(self, origin: bytes, type: int, sequence: int) -> bool:
        """Tell whether a frame was not here before; from now on it was."""
        key = origin, type
        newest, before = self._seen.get(key, (-1, 0))
        if sequence > newest:
            if newest < 0 and len(self._seen) >= self._origins_max:
                del self._seen[next(iter(self._seen))]
            ahead = sequence - newest
            before = (before << ahead | 1 << (ahead - 1)) if ahead <= _SEEN_BITS else 0
            self._seen[key] = sequence, before & ((1 << _SEEN_BITS) - 1)
            return True
        behind = newest - sequence
        if not 0 < behind <= _SEEN_BITS or before >> (behind - 1) & 1:
            return False
        self._seen[key] = newest, before | 1 << (behind - 1)
        return True

"""What the machines of one node's services share: who we are, what goes out, what is counted."""

from collections import Counter, deque
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any, Final, NamedTuple
from zlib import crc32

from hubbub.limits import US
from hubbub.wire.header import CRC, OPEN_BITMAP, TAIL, Prefix, make_key, prefix

NEVER: Final = 1 << 63
Place = tuple[str, int]
# What is asked, the service's key and name, who asks, and what it shows for it.
Policy = Callable[[str, bytes, str, bytes, bytes], bool]


def allow_everything(action: str, key: bytes, name: str, node: bytes, credentials: bytes) -> bool:
    """Let everybody do everything: the policy of who sets none."""
    return True


class Delivered(NamedTuple):
    """Messages for the subscription of this node, numbered from `sequence` and `order` on.

    `answer` is set if somebody waits for one.
    """

    key: bytes
    name: str
    payloads: list[bytes]
    origin: bytes
    incarnation: int
    sequence: int
    order: int
    is_kept: bool
    answer: Any
    subject: str = ""
    epoch: int = 0

    @property
    def payload(self) -> bytes:
        """Return the payload of the first message."""
        return self.payloads[0]

    def pick(self, place: int) -> "Delivered":
        """Return one of the messages."""
        return self._replace(
            payloads=[self.payloads[place]], sequence=self.sequence + place,
            order=self.order + place,
        )  # fmt: skip


class Settled(NamedTuple):
    """The end of something that this node published or asked; `number` counts subscribers.

    It may be that of several messages, numbered from `sequence` on.
    """

    key: bytes
    sequence: int
    status: int
    number: int
    payload: bytes | None = None
    messages: int = 1
    subject: str = ""


class GivenUp(NamedTuple):
    """Messages were not sent to a node, for which too much waits already, or for too long."""

    node: bytes
    messages: int = 1


class ManagerNamed(NamedTuple):
    """A service that we subscribed to has a manager, or another one."""

    name: str
    manager: bytes
    epoch: int


class MemberNews(NamedTuple):
    """Something has happened to another node; `news` is one of `view.News`."""

    news: int
    node: bytes


class Seat:
    """One node among others."""

    def __init__(self, node: bytes, life: int, domain: int, random: Random, now: int) -> None:
        self.node = node
        self.life = life  # Random, new at every start.
        self.domain = domain
        self.key = make_key(node, life)
        self.random = random
        self.now = now
        self.wall_offset_ns = 0
        self.is_leaving = False
        self.is_guest = False  # Looks on, and manages nothing.
        self.is_first_version = False  # Speaks as the first version did, as far as that goes.
        self.policy: Policy = allow_everything
        self.out: deque[tuple[Place, bytes]] = deque()
        self.deliveries: list[Delivered] = []
        self.settled: list[Settled] = []
        self.events: list[GivenUp | ManagerNamed | MemberNews] = []
        self.counters: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()
        self._packets = count(1)
        self._prefixes: dict[int, Prefix] = {}
        self._stamp = 0

    @property
    def may_manage(self) -> bool:
        """Tell whether services can be ours."""
        return not self.is_leaving and not self.is_guest

    def stamp(self) -> int:
        """Return a number that is higher than all before, also than those before a restart."""
        self._stamp = max(self._stamp + 1, (self.now + self.wall_offset_ns) // US)
        return self._stamp

    def stamp_above(self, number: int) -> None:
        """Give no stamp from now on that is not higher than a number."""
        self._stamp = max(self._stamp, number)

    def make_frame(self, kind: int, body: bytes) -> bytes:
        """Put a header before a body."""
        shared = self._prefixes.get(kind)
        if shared is None:
            shared = prefix(kind, OPEN_BITMAP, 0, self.domain, self.key, 1)
            self._prefixes[kind] = shared
        tail = TAIL.pack(0, next(self._packets), self.now // US & 0xFFFF_FFFF)  # As `finish` does.
        return shared.data + tail + CRC.pack(crc32(body, crc32(tail, shared.crc))) + body

    def send(self, place: Place, kind: int, body: bytes) -> None:
        """Send a frame that nobody acknowledges."""
        self.out.append((place, self.make_frame(kind, body)))

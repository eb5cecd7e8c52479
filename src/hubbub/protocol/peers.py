"""The other nodes of a channel, and what is between them and us.

A peer is (node id, incarnation): a restart is another peer. One that is not heard for
`peer_timeout` has left, but what it is owed, and what we wait for from it, is kept for the repair
window: a partition shorter than that costs nothing. A goodbye ends both at once.
"""

from hubbub.limits import SECOND, WANT_INTERVAL
from hubbub.message import Source
from hubbub.protocol.burst import Address, Pipes, place_of
from hubbub.protocol.declared import Declared
from hubbub.protocol.delivery import INPROC, MULTICAST
from hubbub.protocol.moves import Move
from hubbub.protocol.reassembly import Share
from hubbub.protocol.receiver import Receiver
from hubbub.protocol.requests import Asks
from hubbub.protocol.topics import OutgoingTopic
from hubbub.subjects import Matcher
from hubbub.wire.control import Grant, PlacedHello, Replayed
from hubbub.wire.header import NO_INDEX, RELIABLE, Header, split_key
from hubbub.wire.wishes import ALL_RELIABLES, Links, decode_links, may_hand_over

Early = tuple[Header, bytes, str]


class Debt:
    """What a peer is owed by us: topics and from where on, and whether it knows."""

    __slots__ = (
        "due_ns", "entered", "has_begun", "interval_ns", "moves", "number", "owed", "placed",
        "serial", "served", "unserved", "version",
    )  # fmt: skip

    def __init__(self) -> None:
        self.number = 0
        self.owed: dict[int, int] = {}  # Topic number -> first sequence,
        self.placed: dict[int, tuple[int, ...]] = {}  # and the streams it goes by, newest last.
        self.moves: dict[int, Move] = {}  # By class.
        self.entered: set[int] = set()  # Streams of which it may think that it is owed them.
        self.served: dict[int, set[int]] = {}  # Request for history -> topics it has met.
        # What it wants and no link may bring: the topic, and which links it insists on.
        self.unserved: set[tuple[int, Links]] = set()
        self.has_begun = False
        self.version = 0  # The interest that our grant answers.
        self.serial = 0  # Of the grant that the peer must know.
        self.due_ns: int | None = None  # When to send the grant (again).
        self.interval_ns = 0


class Peer:
    """One other node."""

    def __init__(self, key: bytes, address: Address, now: int) -> None:
        identifier, incarnation = split_key(key)
        self.key = key
        self.met_ns = now
        self.source = Source("", identifier, incarnation)
        self.host = ""
        self.pid = 0
        self.release = ""
        self.links: Links = ()  # That it has, as it said; none: it knows nothing of wishes.
        self.opened_ns = now  # By our clock.
        self.index = NO_INDEX  # In the register (protocol/register.py), as it last said.
        self.address = address
        self.pipe: Pipes | None = None
        self.is_nearby = False  # In this process, and served without any frame.
        self.heard_ns = now
        self.grouped_ns: int | None = None  # When it was last heard otherwise than by a pipe.
        self.straight_ns: int | None = None  # When it last said so that datagrams come through.
        self.datagram_port = 0  # Where it takes them, if no frame has shown it yet; 0: unknown.
        self.is_known = False  # Its HELLO is complete.
        self.lost_ns: int | None = None  # When it timed out.
        self.ends: dict[int, int] | None = None  # From its goodbye: where its streams end.
        self.left_ns = 0
        # What it wants and publishes.
        self.declared = Declared()
        self.window_bytes = 0
        self.want_ns: int | None = None  # When to ask for its HELLO (again).
        self.want_interval_ns = WANT_INTERVAL
        # What we owe it, and it owes us.
        self.debt = Debt()
        self.incoming: dict[int, Receiver] = {}
        self.share: Share | None = None  # Of the memory for incomplete messages.
        self.joining: list[Receiver] = []  # Those that continue others, not settled yet.
        self.their_debt = 0
        self.grant_nonce = 0  # The version of our interest that the grant under way answers.
        self.granted_version = 0
        self.grant_serial = 0  # Of the grant under way...
        self.granted_serial = 0  # ...and of the last one that is complete.
        self.grant_parts: set[int] = set()
        self.grant_replays: dict[int, Replayed] = {}
        self.early_grants: list[Grant] = []  # Grants that came before its HELLO.
        self.early: list[Early] = []  # Frames that came before their grant.
        self.early_bytes = 0

    @property
    def interest(self) -> Matcher[None]:
        """Return what it wants."""
        return self.declared.matcher

    @property
    def requests(self) -> dict[int, int]:
        """Return its requests for history: number, and how many messages; 0: all."""
        return self.declared.requests

    @property
    def asks(self) -> Asks:
        """Return what these requests are for."""
        return self.declared.asks

    @property
    def interest_version(self) -> int:
        """Return the version that a grant answers."""
        return self.declared.interest_version

    @property
    def reach(self) -> Address:
        """Return where to send what is for this peer alone."""
        return self.pipe or self.address

    @property
    def link(self) -> str:
        """Name the link by which messages for it alone go."""
        if self.is_nearby:
            return INPROC
        return MULTICAST if self.pipe is None else self.pipe.link

    @property
    def place(self) -> str:
        """Name where it is, for people."""
        return place_of(self.address)

    @property
    def is_present(self) -> bool:
        """Tell whether the peer is here as far as anybody can know."""
        return self.is_known and self.lost_ns is None and self.ends is None

    def gets(self, topic: OutgoingTopic) -> bool:
        """Tell whether a topic of ours is for this peer, by frames or without any."""
        owed = self.debt.owed
        if topic.number in owed or any(one.number in owed for one in topic.branches.values()):
            return True
        return self.is_nearby and any(
            may_hand_over(topic.links, wish) for wish in self.declared.wishes_for(topic.subject)
        )

    def reliable_ends(self) -> dict[int, int]:
        """Return where its reliable streams end, as it has said by its goodbye."""
        ends = self.ends or {}
        return {RELIABLE: 0} | {s: end for s, end in ends.items() if s in ALL_RELIABLES}

    def forget_early(self) -> None:
        """Forget frames whose grant did not come: what of them is owed will be asked for."""
        self.early.clear()
        self.early_bytes = 0

    def introduce(self, now: int, hello: PlacedHello) -> None:
        """Take name, place and age from a HELLO."""
        self.source = Source(hello.name, self.source.id, self.source.incarnation)
        self.host = hello.host
        self.pid = hello.pid
        self.window_bytes = hello.window_bytes
        self.release = hello.release
        self.links = decode_links(hello.links)
        self.datagram_port = hello.datagram_port
        self.opened_ns = now - hello.uptime_s * SECOND

    def hear_of(self, version: int, now: int) -> None:
        """Hear that its declared state has this version; ask for it if it does not come by itself.

        The frames that announce it are repeated, so a known peer is asked only after that.
        """
        declared = self.declared
        declared.announced_version = max(declared.announced_version, version)
        if self.want_ns is None and (declared.is_behind or not self.is_known):
            self.want_ns = now + WANT_INTERVAL if self.is_known else now

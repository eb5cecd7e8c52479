"""A gateway between the bus and a network of RODOS nodes, over UDP.

It stands on the public API alone. A thread reads the socket; messages of the bus come by callbacks.
What RODOS nodes want is subscribed to while they do, and what the bus wants is announced to them.
"""

import select
import socket
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from time import monotonic_ns, time_ns
from typing import Final

from hubbub.closing import Closing
from hubbub.errors import ConfigurationError, HubbubError, LinkError
from hubbub.message import Message
from hubbub.node import Node
from hubbub.protocol.gateway.rodos import RodosPort
from hubbub.protocol.gateway.router import INTELLIGENT, SIMPLE
from hubbub.publisher import Publisher
from hubbub.runtime.logs import logger_of
from hubbub.subjects import check_subject
from hubbub.subscription import Subscription
from hubbub.wire.rodos import DATA_BYTES_MAX, LIST_TOPIC, LISTED_MAX

_log = logger_of("connection")
_LOOK_MS: Final = 50.0
_DATAGRAM_BYTES: Final = 65_535
BROADCAST: Final = "255.255.255.255"

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class RodosStatistics:
    """What a gateway to RODOS did; `nodes` are theirs, by index: the topics each wants."""

    number: int
    index: int
    nodes: dict[int, tuple[int, ...]]
    wanted: tuple[int, ...]
    sent: int
    received: int
    too_long: int
    errors: int
    drops: dict[str, int]
    passed_on: tuple[int, ...]
    """Copies that went over each link, ours among them."""


class RodosLink:
    """A socket, and where to send what goes over it; by default broadcast to its own port."""

    def __init__(self, at: Address, to: Iterable[Address] = ()) -> None:
        self.socket = _open_socket(at)
        self.to = tuple(to) or ((BROADCAST, self.address[1]),)

    @property
    def address(self) -> Address:
        """Return where it listens."""
        host, port = self.socket.getsockname()[:2]
        return host, port

    def send(self, datagram: bytes) -> int:
        """Send to all; return how often that failed: a network may be down for a while."""
        errors = 0
        for address in self.to:
            try:
                self.socket.sendto(datagram, address)
            except OSError:
                errors += 1
        return errors


def open_links(places: Iterable[tuple[Address, Iterable[Address]]]) -> list[RodosLink]:
    """Open a link for each place and where it sends to, or none of them."""
    links: list[RodosLink] = []
    try:
        for at, to in places:
            links.append(RodosLink(at, to))
    except LinkError:
        for link in links:
            link.socket.close()
        raise
    return links


class RodosGateway(Closing):
    """Publish what RODOS nodes send, and send them what they want.

        with hubbub.open("rodos") as node:
            topics = {1001: "/sat/attitude"}
            with RodosGateway(node, topics, [RodosLink(("", 50000), [("10.0.0.255", 50000)])]): ...

    With several links it is a router between them, `simple` (by the receiver field) or
    `intelligent` (by the bitmap). A message of more than 1300 bytes is dropped and counted, or with
    `split` sent in pieces. It closes the links.
    """

    def __init__(
        self, node: Node, topics: dict[int, str], links: Iterable[RodosLink], *,
        number: int | None = None, split: bool = False, flood: bool = False,
        byte_order: str = "little", router: str = INTELLIGENT,
    ) -> None:  # fmt: skip
        self.links = tuple(links)
        self._node = node
        self._is_splitting = split
        self._lock = threading.Lock()
        self._sent = self._received = self._too_long = self._errors = 0
        self._publishers: dict[int, Publisher] = {}
        self._subscriptions: dict[int, Subscription] = {}
        self._is_closed = False
        try:
            self._subjects = _check_topics(topics)
            _check_choice("byte_order", byte_order, ("little", "big"))
            _check_choice("router", router, (SIMPLE, INTELLIGENT))
            number = int.from_bytes(node.id[:4], "big") >> 1 if number is None else number
            self._port = RodosPort(
                number, topics, is_flooding=flood, order=byte_order, links=len(self.links),
                mode=router,
            )  # fmt: skip
            for topic, subject in self._subjects.items():
                self._publishers[topic] = node.publisher(subject)
        except BaseException:
            self._leave()
            raise
        self._thread = threading.Thread(target=self._run, name="hubbub-rodos", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        poll = select.poll()
        numbers = {link.socket.fileno(): number for number, link in enumerate(self.links)}
        for fileno in numbers:
            poll.register(fileno, select.POLLIN)
        while not self._is_closed:
            try:
                for fileno, _ in poll.poll(_LOOK_MS):
                    self._read(numbers[fileno])
                self._look(monotonic_ns())
            except (OSError, HubbubError) as error:
                if self._is_closed or self._node.is_closed:
                    return
                _log.warning("RODOS: %s", error)

    def _read(self, number: int) -> None:
        datagram = self.links[number].socket.recv(_DATAGRAM_BYTES)
        with self._lock:
            taken = self._port.take(monotonic_ns(), datagram, number)
            onward, self._port.onward = self._port.onward, []
        for other, passed in onward:
            self._errors += self.links[other].send(passed)
        if taken is not None:
            topic, payload = taken
            self._received += 1
            self._publishers[topic].publish(payload)

    def _look(self, now: int) -> None:
        """Follow what is wanted on either side; announce ourselves when that changed, or is due."""
        wanted = {topic for topic, one in self._publishers.items() if one.receivers}
        with self._lock:
            port = self._port
            port.expire(now)
            is_due = now >= port.list_ns or wanted != port.wanted
            listed = port.announce(now, time_ns(), wanted) if is_due else b""
            theirs = {topic for topic in self._subjects if port.is_wanted(topic)}
        if listed:
            self._send([listed], range(len(self.links)))
        for topic in theirs - self._subscriptions.keys():
            self._subscriptions[topic] = self._node.subscribe(
                self._subjects[topic], self._pass_on, context=topic, no_local=True
            )
        for topic in self._subscriptions.keys() - theirs:
            self._subscriptions.pop(topic).close()

    def _pass_on(self, message: Message) -> None:
        """Send a message of the bus."""
        if len(message.payload) > DATA_BYTES_MAX and not self._is_splitting:
            self._too_long += 1
            if self._too_long == 1:
                _log.warning(
                    "%s: %d bytes are more than the %d of a RODOS message; it is dropped, and"
                    " further ones are counted: send less, or split",
                    message.subject, len(message.payload), DATA_BYTES_MAX,
                )  # fmt: skip
            return
        with self._lock:
            datagrams = self._port.make(message.context, message.payload, message.published_ns)
            numbers = self._port.links_of(monotonic_ns(), message.context) if datagrams else ()
        self._send(datagrams, numbers)

    def _send(self, datagrams: list[bytes], numbers: Iterable[int]) -> None:
        for datagram in datagrams:
            for number in numbers:
                self._errors += self.links[number].send(datagram)
            self._sent += 1

    def statistics(self) -> RodosStatistics:
        """Return what was passed on either way, and why not."""
        with self._lock:
            port = self._port
            return RodosStatistics(
                port.number, port.index,
                {index: tuple(sorted(node.topics)) for index, node in sorted(port.nodes.items())},
                tuple(sorted(port.wanted)), self._sent, self._received, self._too_long,
                self._errors, {**port.drops, **port.router.drops},
                tuple(port.router.passed[number] for number in port.router.links),
            )  # fmt: skip

    def close(self) -> None:
        """Leave the RODOS network; the node stays open."""
        if self._is_closed:
            return
        self._is_closed = True
        self._thread.join()
        self._leave()

    def _leave(self) -> None:
        for one in (*self._subscriptions.values(), *self._publishers.values()):
            one.close()
        for link in self.links:
            link.socket.close()


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigurationError(f"{name}={value!r} is neither {choices[0]} nor {choices[1]}")


def _check_topics(topics: dict[int, str]) -> dict[int, str]:
    if not 0 < len(topics) <= LISTED_MAX:
        raise ConfigurationError(f"give 1 to {LISTED_MAX} topics, not {len(topics)}")
    for topic, subject in topics.items():
        if not 0 <= topic <= 0xFFFF_FFFF or topic == LIST_TOPIC:
            raise ConfigurationError(
                f"topic {topic} must be from 0 to 4294967295, and not {LIST_TOPIC}: topic lists"
            )
        check_subject(subject)
    if len(set(topics.values())) < len(topics):
        raise ConfigurationError("two topics have the same subject")
    return dict(topics)


def _open_socket(at: Address) -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    try:
        opened.bind(at)
    except OSError as error:
        opened.close()
        raise LinkError(f"cannot listen for RODOS at {at[0]}:{at[1]}: {error.strerror}") from error
    return opened

"""All services of a node: its socket, who is there, and the lists that it keeps."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random, SystemRandom
from threading import Lock, Thread
from time import monotonic, monotonic_ns, time_ns
from typing import TYPE_CHECKING, Final

from hubbub.errors import ClosedError, LinkError
from hubbub.events import Event, ManagerChanged, ServiceUnavailable, SlowConsumer
from hubbub.introductions import Introductions
from hubbub.limits import (
    BATCH_BYTES,
    INQUIRIES_MAX,
    MS,
    SECOND,
    SERVICE_PAYLOAD_BYTES_MAX,
)
from hubbub.links.datagram import DatagramLink, resolve
from hubbub.links.dialling import HostAndPort
from hubbub.links.group_ear import GroupEar
from hubbub.links.interfaces import choose
from hubbub.links.listening import address_text
from hubbub.links.opening import wanted_address
from hubbub.message import Source
from hubbub.protocol.delivery import SERVICES
from hubbub.protocol.endpoint import hash_domain
from hubbub.protocol.peers import Peer
from hubbub.protocol.rendezvous.looking import Listed
from hubbub.protocol.rendezvous.placement import find_placement, shares
from hubbub.protocol.rendezvous.profile import find_profile
from hubbub.protocol.rendezvous.rendezvous import Options, Rendezvous
from hubbub.protocol.rendezvous.seat import (
    Delivered,
    GivenUp,
    ManagerNamed,
    Place,
    Settled,
    allow_everything,
)
from hubbub.runtime.group_listener import GroupListener
from hubbub.runtime.logs import logger_of
from hubbub.runtime.service_driver import Found, ServiceDriver
from hubbub.service import CHANNEL, Service
from hubbub.service_options import ServiceOptions, guard
from hubbub.service_statistics import (
    FoundService,
    ListedService,
    RingMember,
    ServiceNode,
    ServicesStatistics,
    describe_services,
)
from hubbub.subject_services import SubjectServices
from hubbub.wire.header import HEADER_BYTES, MEMBERS
from hubbub.wire.services import (
    ENVELOPE_BYTES,
    TAKEN,
    UNAVAILABLE,
    Managed,
    decode_members,
    encode_members,
    node_key,
    service_key,
)

if TYPE_CHECKING:
    from hubbub.connection import Connection
    from hubbub.node import Node

_log = logger_of("connection")
_OF_SERVICES: Final = (Delivered, Settled)  # A union would be made anew at each message.
_ANNOUNCE_ALONE_NS = 500 * MS
_ANNOUNCE_NS = 30 * SECOND
# Headers of IPv6, UDP and a frame, the envelope, the head of a message, the count of a batch.
_AROUND_BYTES = 40 + 8 + HEADER_BYTES + ENVELOPE_BYTES + 21 + 2
_LOOK_UP_S = 5.0  # Between two looks for the address of a name,
_LOOK_UP_AGAIN_S = 60.0  # and where there is one, and somebody is known.
_REPORT_S = 1.0  # Events of one service and reason: one so often.
_REPORTED_MAX = 1024


class Services:
    """The services of one node."""

    def __init__(self, node: "Node", connection: "Connection", options: ServiceOptions) -> None:
        self._node = node
        self._lock = Lock()
        self._by_key: dict[bytes, Service] = {}
        self._reported: dict[tuple[str, str], float] = {}
        link = DatagramLink(*_where(node, connection), may_move=not node._options.listen.port)
        self._ear = _ear(node, connection, link)
        seeds, names = _seeds(node, connection)
        settings = _options(options, _batch_bytes(node, connection))
        now = monotonic_ns()
        machine = Rendezvous(
            now, node.id, node.identity.incarnation, hash_domain(node.domain),
            Random(SystemRandom().getrandbits(64)), seeds=[s for s in seeds if s != link.place],
            options=settings, wall_offset_ns=time_ns() - now,
            is_expecting="multicast" in node.links or bool(names),
            group=None if self._ear is None else self._ear.place,
        )  # fmt: skip
        self.driver = ServiceDriver(machine, link, node._loop, self._take)
        self._introductions: Introductions | None = None  # By which others are connected to.
        if node._options.is_finding and not options.is_guest:
            self._introductions = Introductions(
                self.driver, connection.driver, is_told_of_some=bool(node._options.peers)
            )
        self._core_driver = connection.driver
        self.subjects: SubjectServices | None = None  # Those that travel by services.
        if SERVICES in node.links:
            self.subjects = SubjectServices(connection, self, options.service_levels)
        node._loop.attach(self.driver, node._options.switch_interval_ms, node._options.spin_us)
        _log.info("services at %s:%s", *link.place)
        if names:
            Thread(target=self._look_up, args=(names,), name="hubbub-resolver", daemon=True).start()
        if "multicast" in node.links:
            connection.driver.core.on_members = self._hear
            self._announce()

    def _look_up(self, names: list[HostAndPort]) -> None:
        """Find the addresses of peers that were named, again and again: they may change."""
        machine, told = self.driver.machine, set[HostAndPort]()
        while self.driver.closed_reason is None:
            found = [(name, resolve(*name)) for name in names]
            for name, place in found:
                if place is not None and place != self.driver.link.place:
                    with suppress(ClosedError):
                        self.driver.call(machine.swim.add_seed, place)
                elif place is None and name not in told and self._core_driver.tcp is None:
                    told.add(name)
                    _log.warning(
                        "peers: %s has no address; it is looked up again and again", name[0]
                    )
            is_soon = not machine.view.members or any(place is None for _, place in found)
            self.driver.closed.wait(_LOOK_UP_S if is_soon else _LOOK_UP_AGAIN_S)

    def open(self, name: str) -> Service:
        """Return the service of a name; the same one each time."""
        service = Service(self._node, self, name)
        with self._lock:
            return self._by_key.setdefault(service.key, service)

    def listen(self) -> None:
        """Hear the group, where there is one: something is about to be subscribed."""
        with self._lock:
            ear, self._ear = self._ear, None
            if ear is None or self.driver.closed_reason is not None:
                return
            try:
                ear.open()
            except LinkError as error:
                _log.info("services without a group: %s", error)
                return
            self.driver.listener = GroupListener(self.driver, ear)
            self._node._loop.attach(self.driver.listener)
            if self.driver.closed_reason is not None:  # Meanwhile: nobody else closes it.
                self.driver.listener.close()

    @property
    def address(self) -> str:
        """Return where others find the services of this node."""
        return self.driver.link.statistics().address

    def wait_for_members(self, count: int, timeout: float | None = None) -> bool:
        """Wait until this node knows so many others; False: not in time."""
        view = self.driver.machine.view
        return self.driver.wait(lambda: len(view.present()) >= count, timeout)

    def find(self, timeout: float = 0.3) -> tuple[FoundService, ...]:
        """Ask all nodes which services they manage, and return what they say within a time."""
        machine = self.driver.machine
        self.driver.call(machine.looking.inquire)
        with self.driver.lock:
            asked = {member.node for member in machine.view.present()}
        self.driver.wait(lambda: asked <= machine.looking.inventories.keys(), timeout)
        return self._found()

    def find_subscribers(
        self, names: Iterable[str] = (), timeout: float = 0.3
    ) -> tuple[ListedService, ...]:
        """Find services, those named or all, and ask their managers who subscribes to them."""
        wanted = set(names)
        found = [one for one in self.find(timeout) if not wanted or one.name in wanted]
        listed: list[Listed] = []
        for at in range(0, len(found), INQUIRIES_MAX):
            asked = [self._ask_subscribers(one) for one in found[at : at + INQUIRIES_MAX]]
            self.driver.wait(partial(_are_over, asked), timeout)
            listed += asked
        known = self._names()
        with self.driver.lock:
            return tuple(
                ListedService(
                    service, self._node_of(one.manager, known),
                    tuple(self._node_of(node, known) for node in sorted(one.nodes)),
                )
                for service, one in zip(found, listed, strict=True)
            )  # fmt: skip

    def _ask_subscribers(self, found: FoundService) -> Listed:
        manager, key = bytes.fromhex(found.manager), bytes.fromhex(found.key)
        asked: Listed = self.driver.call(self.driver.machine.looking.ask_subscribers, manager, key)
        return asked

    def _names(self) -> dict[bytes, str]:
        """Return the names of nodes; one that is known by its services alone has none."""
        names = {peer.node.id: peer.node.name for peer in self._node.peers()}
        return {**names, self._node.id: self._node.name}

    def _node_of(self, node: bytes, names: dict[bytes, str]) -> ServiceNode:
        return ServiceNode(node.hex(), names.get(node, ""), self._address_of(node))

    def _address_of(self, node: bytes) -> str:
        is_own, view = node == self._node.id, self.driver.machine.view
        place = self.driver.link.place if is_own else view.place_of(node)
        return "" if place is None else address_text(place)

    def find_terms(self, timeout: float = 0.3) -> tuple[FoundService, ...]:
        """Find services, and who managed them until lately: also when that was not for long."""
        return (*self.find(timeout), *self._ended())

    def take_terms(self) -> tuple[FoundService, ...]:
        """Return the same of what nodes said since this was called last, and ask them again."""
        found = (*self._found(), *self._ended())
        self.driver.call(self.driver.machine.looking.inquire)
        return found

    def _found(self) -> tuple[FoundService, ...]:
        machine = self.driver.machine
        with self.driver.lock:
            found = [
                (node, one)
                for node, some in machine.looking.inventories.items()
                for one in some.values()
            ]
            found += [(self._node.id, one) for one in machine.looking.list_managed()]
            described = [self._describe(node, one) for node, one in found]
        return tuple(sorted(described, key=lambda one: (one.name, one.key)))

    def _ended(self) -> tuple[FoundService, ...]:
        machine = self.driver.machine
        with self.driver.lock:
            ended = [(node, one) for node, some in machine.looking.ended.items() for one in some]
            ended += [(self._node.id, one) for one in machine.manager.list_ended(monotonic_ns())]
            return tuple(self._describe(node, one) for node, one in ended)

    def _describe(self, node: bytes, one: Managed) -> FoundService:
        machine = self.driver.machine
        return FoundService(
            one.name, one.key.hex(), node.hex(), self._address_of(node), one.epoch,
            one.messages, one.subscribers, ", ".join(machine.roles_in(one.key)),
        )  # fmt: skip

    def ring(self) -> tuple[RingMember, ...]:
        """Return all nodes that share services, in the order of their keys, and their shares."""
        with self.driver.lock:
            machine = self.driver.machine
            members = machine.view.present()
            numbers = [one.number for one in members]
            weights = [one.weight for one in members]
            own = None if machine.seat.is_guest else _own_member(self)
            if own is not None:
                numbers.append(int.from_bytes(node_key(self._node.id), "big"))
                weights.append(machine.view.weight)
            parts = shares(machine.view.placement, numbers, weights) if numbers else []
            rows = [
                RingMember(
                    one.node.hex(), address_text(one.place), one.state.name.lower(),
                    one.is_settled, parts[place],
                )
                for place, one in enumerate(members)
            ]  # fmt: skip
        if own is not None:
            rows.append(replace(own, share=parts[-1]))
        return tuple(sorted(rows, key=lambda one: node_key(bytes.fromhex(one.id))))

    def manager_of(self, name: str) -> str:
        """Return the id of the node that would manage a service of this name."""
        with self.driver.lock:
            found = self.driver.machine.view.closest(service_key(name))
            return "" if found is None else found.hex()

    def close(self) -> None:
        """Leave: hand all services over first."""
        self.driver.close()
        for service in list(self._by_key.values()):
            service._end("the node is closed")

    def forked(self) -> None:
        """Refuse everything in a forked child."""
        for service in list(self._by_key.values()):
            service._forked()

    def _announce(self) -> None:
        """Tell the group of the channel where our services are, again and again."""
        driver = self._core_driver
        if self.driver.closed_reason is not None or driver.closed_reason is not None:
            return
        body = encode_members(self.driver.machine.swim.announcement(self.driver.link.place[1]))
        try:
            driver.call(lambda now: driver.core.endpoint.send(None, MEMBERS, 0, body))
        except ClosedError:
            return
        with self.driver.lock:
            is_alone = not self.driver.machine.view.present()
        again_ns = monotonic_ns() + (_ANNOUNCE_ALONE_NS if is_alone else _ANNOUNCE_NS)
        self._node._call_at(again_ns, self._announce)

    def _hear(self, now: int, peer: Peer, body: bytes) -> None:
        """Hear where the services of a peer are."""
        members = decode_members(body)
        if members is not None:
            with suppress(ClosedError):  # Else what else came in that turn would be lost.
                self.driver.call(self.driver.machine.swim.greet, str(peer.address[0]), members)

    def report(self, name: str, reason: str) -> None:
        """Report that a message found nobody, not too often."""
        self._report((name, reason), ServiceUnavailable(CHANNEL, name, reason))

    def _report(self, what: tuple[str, str], event: Event) -> None:
        now = monotonic()
        if now - self._reported.get(what, -_REPORT_S) >= _REPORT_S:
            if len(self._reported) >= _REPORTED_MAX:
                self._reported.clear()
            self._reported[what] = now
            self._node._emit(event)

    def _take(self, found: Found) -> None:
        """Hand on what the machine tells; no lock is held."""
        if type(found) is Delivered and self.subjects is None:
            taker = self._by_key.get(found.key)
            if taker is not None:
                taker._take(found, time_ns())
        elif isinstance(found, _OF_SERVICES):
            service = self._by_key.get(found.key)
            if self.subjects is not None and found.subject and self._take_subject(found):
                return
            if service is None:
                return
            if isinstance(found, Delivered):
                service._take(found, time_ns())
            else:
                service._settle(found)
        elif isinstance(found, GivenUp):
            peer = Source("", found.node, 0)
            event = SlowConsumer(CHANNEL, "left_behind", found.messages, peer=peer)
            self._report((found.node.hex(), event.policy), event)
        elif isinstance(found, ManagerNamed):
            source = self.source_of(found.manager)
            self._node._emit(ManagerChanged(CHANNEL, found.name, source, found.epoch))
        elif self._introductions is not None:
            self._introductions.follow()

    def source_of(self, node: bytes, incarnation: int = 0) -> Source:
        """Say who a node is."""
        return Source(self._names().get(node, ""), node, incarnation)

    def _take_subject(self, found: Delivered | Settled) -> bool:
        """Take what concerns an ordinary subject; that nobody wants it is in order."""
        assert self.subjects is not None
        if isinstance(found, Delivered):
            self.subjects.take(found)
            return found.key not in self._by_key
        return found.status in (TAKEN, UNAVAILABLE)

    def statistics(self) -> ServicesStatistics:
        """Return the lists, as a frozen snapshot."""
        with self.driver.lock:
            return describe_services(self.driver)


def _are_over(asked: list[Listed]) -> bool:
    return all(one.is_over for one in asked)


def _own_member(services: Services) -> RingMember:
    return RingMember(services._node.id.hex(), services.address, "alive", True, 0.0)


def _ear(node: "Node", connection: "Connection", link: DatagramLink) -> GroupEar | None:
    """Return the group of the services, if this node has multicast, and it leads somewhere."""
    if "multicast" not in node.links:
        return None
    channel = connection.channel
    known = choose(channel.interface or node._options.interface)
    try:
        return GroupEar(link, channel.group, channel.port, known)
    except LinkError as error:
        _log.info("services without a group: %s", error)
        return None


def _where(node: "Node", connection: "Connection") -> Place:
    """Return the address to bind to: that of TCP, so that one name leads to both."""
    tcp = connection.driver.tcp
    if tcp is not None:
        return tcp.link.place
    interface = connection.channel.interface or node._options.interface
    chosen = choose(interface)[0]
    host = wanted_address(interface) or next(iter(chosen.addresses), "") or "127.0.0.1"
    if SERVICES not in node.links:
        return host, 0
    port = node._options.listen.port
    return node._options.listen.host or host, connection.channel.port if port is None else port


def _seeds(node: "Node", connection: "Connection") -> tuple[list[Place], list[HostAndPort]]:
    """Return the addresses of the peers that were named, and the names that are to be looked up."""
    places: list[Place] = []
    names: list[HostAndPort] = []
    for host, port in node._options.peers:
        named = HostAndPort(host, port or connection.channel.port)
        place = resolve(*named, is_numeric=True)
        if place is None:
            names.append(named)
        else:
            places.append(place)
    return places, names


def _batch_bytes(node: "Node", connection: "Connection") -> int:
    """Return how many bytes of messages one datagram takes that the network need not cut."""
    mtu = min(one.mtu for one in choose(connection.channel.interface or node._options.interface))
    return min(max(mtu - _AROUND_BYTES, BATCH_BYTES), SERVICE_PAYLOAD_BYTES_MAX)


def _options(options: ServiceOptions, batch_bytes: int) -> Options:
    policy = allow_everything if options.policy is None else guard(options.policy)
    return Options(
        find_profile(options.membership), find_placement(options.placement), options.weight,
        policy, options.is_guest, batch_bytes,
        options.version == "v1",
    )  # fmt: skip

"""What is watched at every step of a run of services: promises that hold at all times."""

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from hubbub.limits import (
    DIRECT_FAN_OUT,
    HELD_REQUESTS_MAX,
    HOP_WINDOW,
    ORDER_WAITING_MAX,
    ORDERED_PUBLISHERS_MAX,
    PUBLISHES_MAX,
    SEEN_PUBLISHERS_MAX,
    SERVICE_HOPS_MAX,
    TREE_FAN_OUT,
)
from hubbub.protocol.burst import Address
from hubbub.protocol.rendezvous.listing import Line
from hubbub.protocol.rendezvous.roles import Role
from hubbub.protocol.rendezvous.seat import Delivered
from hubbub.protocol.rendezvous.service import HandOver, Service
from hubbub.simulation.world import World
from hubbub.wire.header import HEADER_BYTES, MAGIC, SERVICE
from hubbub.wire.services import (
    INFO,
    LEAVING,
    PUBLISH,
    SUBSCRIBE_SERVICE,
    UNSUBSCRIBE_SERVICE,
    Request,
    decode_message,
    decode_request,
    distance,
    node_key,
)

if TYPE_CHECKING:
    from hubbub.simulation.services import ServiceNode

_MAGIC = MAGIC.to_bytes(2, "big")
_KIND_OFFSET = 3
_NO_EPOCHS: dict[bytes, int] = {}
_NOTHING_KNOWN: dict[bytes, "Known"] = {}
Lane = tuple[bytes, int, bytes, str]  # Of whom, in which life, in which service, on what subject.
_REQUESTS = (SUBSCRIBE_SERVICE, UNSUBSCRIBE_SERVICE, PUBLISH)


class Begun(NamedTuple):
    """A hand-over that was begun: to whom, and who was on the list then."""

    hand_over: HandOver
    taker: "ServiceNode | None"
    lines: list[Line]


class Known(NamedTuple):
    """What a node knew of a service when it was looked at last."""

    service: Service
    epoch: int
    begun: Begun | None


class Watch:
    """Looks at every frame, every delivery, every epoch and every list that is handed over."""

    def __init__(self, world: World) -> None:
        self.world = world
        # A message that meets a change of managers may be passed on by one that serves it, too.
        self.fan_out_max = DIRECT_FAN_OUT + TREE_FAN_OUT
        self.is_xor = True
        self.infos = 0  # Messages that were sent to subscribers, frame by frame.
        self._had: set[tuple[int, bytes]] = set()
        self._epochs: dict[int, dict[bytes, int]] = {}
        self._known: dict[int, dict[bytes, Known]] = {}
        self._sent: dict[tuple[int, Lane, int], set[Address]] = defaultdict(set)

    def delivered(self, node: "ServiceNode", one: Delivered) -> None:
        """Check a message that an application is handed."""
        world, mark = self.world, (node.life, one.payload)
        if not one.incarnation:
            return  # Of the first version: nobody can tell.
        world.check(mark not in self._had, f"{node} had {one.payload!r} twice (H6)")
        self._had.add(mark)
        is_wild = bool(one.subject and node.wanted_everywhere)
        is_wanted = is_wild or one.name in node.wanted
        world.check(is_wanted, f"{node} had a message of {one.name} after its end (H11)")

    def look(self, node: "ServiceNode", *, has_message: bool) -> None:
        """Check what a node knows: epochs, lists and bounds."""
        self._look_at_subscriptions(node, has_message=has_message)
        self._look_at_services(node)
        machine, check = node.machine, self.world.check
        publishing = machine.publishing
        if publishing.messages or publishing.size_bytes:
            check(publishing.messages <= PUBLISHES_MAX, "too many messages under way (H13)")
            check(publishing.messages >= 0 <= publishing.size_bytes, "ended twice (H13)")
        for track in machine.hops.tracks.values():
            if len(track.sent) > HOP_WINDOW:
                self.world.fail("too many frames on their way (H13)")
            if track.waiting and track.is_overfull:
                self.world.fail("too many frames wait for one node (H13)")

    def _look_at_subscriptions(self, node: "ServiceNode", *, has_message: bool) -> None:
        # Asked in every turn of every node: no call, and no text, where nothing is wrong.
        before, now = self._epochs.get(node.life, _NO_EPOCHS), {}
        for key, one in node.machine.client.subscribed.items():
            now[key] = epoch = one.epoch
            if epoch < before.get(key, 0):
                self.world.fail(f"{node}: epoch {epoch} after {before[key]} (H10)")
            if not has_message:
                continue  # Nothing was remembered since.
            if len(one.seen) > SEEN_PUBLISHERS_MAX:
                self.world.fail("too many publishers remembered (H13)")
            if len(one.sequencers) > ORDERED_PUBLISHERS_MAX:
                self.world.fail("too many sequences (H13)")
            if one.sequencers.waiting > ORDER_WAITING_MAX + 1:
                self.world.fail("too many wait (H13)")
        self._epochs[node.life] = now

    def _look_at_services(self, node: "ServiceNode") -> None:
        """Check managers, those who hold copies, and those who managed a service until lately."""
        before, now = self._known.get(node.life, _NOTHING_KNOWN), {}
        for key, service in node.machine.manager.services.items():
            if len(service.held) > HELD_REQUESTS_MAX:
                self.world.fail("too many held (H13)")
            known, begun = before.get(key), None
            if known is not None and known.service is service:
                begun = known.begun
                if service.epoch < known.epoch:
                    what = f"epoch {service.epoch} after {known.epoch} as {service.role.value}"
                    self.world.fail(f"{node}: {what} (H10)")
            if begun is not None and service.role is Role.FORWARDING:
                self._check_handed_over(node, service, begun)
            now[key] = Known(service, service.epoch, _note_hand_over(node, service, begun))
        self._known[node.life] = now

    def _check_handed_over(self, node: "ServiceNode", service: Service, begun: Begun) -> None:
        """Check that who said that it has the list has all of it, and not only after a lease."""
        taker = begun.taker
        if taker is None or not taker.is_alive:
            return
        taken = taker.machine.manager.services.get(service.key)
        lines = {} if taken is None else taken.listing.lines
        view = taker.machine.view
        lost = [
            line
            for line in begun.lines
            if service.listing.lines.get(line.node) is line  # Later ones are on their way.
            and not _is_known(line, lines.get(line.node))
            and view.is_present(line.node)
        ]
        text = f"{taker} took the list of {node} without {len(lost)} of it: not at once (H2)"
        self.world.check(not lost, text)

    def sent(self, node: "ServiceNode", place: Address, frame: bytes) -> None:
        """Check a frame that leaves."""
        if frame[:2] != _MAGIC:
            self.world.check(decode_message(frame) is not None, "no message of the first version")
            self.world.counts["sent_bare"] += 1
            return
        if frame[_KIND_OFFSET] != SERVICE or len(frame) < HEADER_BYTES:
            return
        request = decode_request(frame[HEADER_BYTES:])
        self.world.check(request is not None, "a frame that cannot be read (H14)")
        assert request is not None
        if request.message.type in _REQUESTS and request.hops:
            self._check_hop(node, place, request)
        elif request.message.type == INFO:
            self._check_fan_out(node, place, request)

    def _check_fan_out(self, node: "ServiceNode", place: Address, info: Request) -> None:
        """Check that a message, known by its lane and number, goes to few nodes from here."""
        lane = (info.origin, info.incarnation, info.message.key, info.extra.subject)
        targets = self._sent[node.life, lane, info.sequence]
        targets.add(place)
        self.infos += 1
        if len(targets) > self.fan_out_max:
            self.world.fail(f"{node} sends a message to {len(targets)} nodes (H13)")

    def _check_hop(self, node: "ServiceNode", place: Address, request: Request) -> None:
        """Check that what is passed on comes closer."""
        text = f"passed on {request.hops} times (H9)"
        self.world.check(request.hops <= SERVICE_HOPS_MAX, text)
        target = next((one for one in node.town.nodes if one.address == place), None)
        if target is None or request.flags & LEAVING or not self.is_xor:
            return
        key = request.message.key
        here, there = distance(node_key(node.id), key), distance(node_key(target.id), key)
        self.world.check(there < here, f"{node} passes a request on to {target}: farther (H9)")


def _note_hand_over(node: "ServiceNode", service: Service, begun: Begun | None) -> Begun | None:
    """Return what is to be remembered of the hand-over that is under way."""
    hand_over = service.hand_over
    if hand_over is None or (begun is not None and begun.hand_over is hand_over):
        return None if hand_over is None else begun
    alive = (one for one in node.town.nodes if one.is_alive)
    taker = next((one for one in alive if one.id == hand_over.target), None)
    return Begun(hand_over, taker, list(service.listing))


def _is_known(line: Line, known: Line | None) -> bool:
    """Tell whether a list has a line of another, or what came after it.

    One that was struck off because its node seemed dead is served as long as that is there.
    """
    return known is not None and (known.is_in or known.is_absent or known.stamp > line.stamp)

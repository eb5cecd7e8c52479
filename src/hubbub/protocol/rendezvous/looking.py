"""Look on: ask nodes which services they manage, and managers who subscribes; and answer that.

Neither is acknowledged, and nothing depends on it: what is lost is asked for again by who wants to
know. So an answer is bounded, however long a list is, and an answer that nobody asked for is left.
"""

from dataclasses import dataclass, field

from hubbub.limits import (
    INQUIRIES_MAX,
    INVENTORY_NODES,
    INVENTORY_NODES_MAX,
    INVENTORY_SERVICES,
)
from hubbub.protocol.rendezvous.client import Client
from hubbub.protocol.rendezvous.manager import Manager, describe
from hubbub.protocol.rendezvous.publishing import Lane
from hubbub.protocol.rendezvous.seat import Place
from hubbub.wire.header import NOTICE
from hubbub.wire.services import KEY_BYTES, Inquiry, Inventory, Managed, encode_notice

_QUESTIONS = 1 << 31  # To managers; questions to all nodes are numbered below.


@dataclass(slots=True)
class Listed:
    """The subscribers of a service, as its manager tells of them."""

    manager: bytes
    service: Managed | None = None
    nodes: set[bytes] = field(default_factory=set)
    is_over: bool = False

    def take(self, inventory: Inventory) -> None:
        """Take a part of the list."""
        self.service = next(iter(inventory.services), None)
        self.nodes.update(inventory.nodes[: INVENTORY_NODES_MAX - len(self.nodes)])
        count = 0 if self.service is None else self.service.subscribers
        self.is_over = len(self.nodes) >= min(count, INVENTORY_NODES_MAX)


class Looking:
    """What this node asks others about their services, and tells of its own."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._manager = manager
        self._asking = client.asking
        self._seat = manager.seat
        self._view = manager.view
        self.inventories: dict[bytes, dict[bytes, Managed]] = {}  # Of nodes that were asked.
        self.ended: dict[bytes, list[Managed]] = {}  # What they managed until lately.
        self._inquiry = 0
        self._question = _QUESTIONS
        self._questions: dict[int, Lane | Listed] = {}  # What managers were asked, by its number.

    # Asking.

    def inquire(self, now: int) -> None:
        """Ask all nodes which services they manage; the answers come into `inventories`."""
        self._seat.now = now
        self._inquiry += 1
        self.inventories.clear()
        self.ended.clear()
        body = encode_notice(0, Inquiry(self._inquiry))
        for member in self._view.present():
            self._seat.send(member.place, NOTICE, body)

    def ask_receivers(self, now: int, lane: Lane) -> None:
        """Ask the manager how many a message would go to; the answer comes into the lane."""
        self._seat.now = now
        target = self._asking.target(now, lane.key)
        place = self._view.place_of(target)
        if target == self._seat.node:
            lane.receivers = self._manager.count_receivers(lane.key, lane.subject, target)
        elif place is not None:
            number = self._note(lane)
            body = encode_notice(0, Inquiry(number, lane.key, lane.subject))
            self._seat.send(place, NOTICE, body)

    def ask_subscribers(self, now: int, manager: bytes, key: bytes) -> Listed:
        """Ask a manager who subscribes to a service; the answer comes into what is returned."""
        self._seat.now = now
        listed, place = Listed(manager), self._view.place_of(manager)
        if manager == self._seat.node:
            for part in self._list(0, key):
                listed.take(part)
        elif place is not None:
            body = encode_notice(0, Inquiry(self._note(listed), key, is_listing=True))
            self._seat.send(place, NOTICE, body)
        else:
            listed.is_over = True
        return listed

    def _note(self, asked: Lane | Listed) -> int:
        """Give a question to a manager its number."""
        if len(self._questions) >= INQUIRIES_MAX:
            self._questions.clear()
        self._question = _QUESTIONS | self._question + 1 & _QUESTIONS - 1
        self._questions[self._question] = asked
        return self._question

    def take(self, node: bytes, inventory: Inventory) -> None:
        """Hear what a node tells of its services."""
        asked = self._questions.get(inventory.number)
        if isinstance(asked, Listed):
            if node == asked.manager:
                asked.take(inventory)
            if asked.is_over:
                del self._questions[inventory.number]
        elif asked is not None:
            del self._questions[inventory.number]
            if inventory.services:
                asked.receivers = inventory.services[0].subscribers
        elif inventory.number == self._inquiry and self._view.is_present(node):
            found = self.inventories.setdefault(node, {})
            found.update({one.key: one for one in inventory.services})
            self.ended.setdefault(node, []).extend(inventory.ended)

    # Answering.

    def answer(self, node: bytes, place: Place, inquiry: Inquiry) -> None:
        """Tell a node what it asked for."""
        key, number = inquiry.key, inquiry.number
        if not key:
            parts = self._list_all(number)
        elif inquiry.is_listing:
            parts = self._list(number, key)
        else:
            count = self._manager.count_receivers(key, inquiry.subject, node)
            one = Managed(key.ljust(KEY_BYTES, b"\0"), "", 0, 0, count)
            parts = [Inventory(number, [one])]
        for part in parts:
            self._seat.send(place, NOTICE, encode_notice(0, part))

    def list_managed(self) -> list[Managed]:
        """Return the services that this node manages, as it tells others."""
        served = [one for one in self._manager.services.values() if one.is_served]
        return [describe(one) for one in served if not one.is_empty]

    def _list_all(self, number: int) -> list[Inventory]:
        services, ended = self.list_managed(), self._manager.list_ended(self._seat.now)
        parts = [
            Inventory(number, services[at : at + INVENTORY_SERVICES])
            for at in range(0, len(services), INVENTORY_SERVICES)
        ]
        return [*parts, Inventory(number, [], ended)] if ended or not services else parts

    def _list(self, number: int, key: bytes) -> list[Inventory]:
        """Return who subscribes to a service, in parts; nothing, if it is not ours."""
        service = self._manager.services.get(key)
        if service is None or not service.is_served:
            return [Inventory(number, [])]
        known, nodes = [describe(service)], sorted(line.node for line in service.listing)
        return [
            Inventory(number, known, [], nodes[at : at + INVENTORY_NODES])
            for at in range(0, min(len(nodes), INVENTORY_NODES_MAX), INVENTORY_NODES)
        ] or [Inventory(number, known)]

"""Who looks on hears who subscribes to a service: in parts, so many and no more."""

from random import Random

import pytest

from hubbub.limits import INQUIRIES_MAX, INVENTORY_NODES, INVENTORY_NODES_MAX, SERVICE_LEASE
from hubbub.protocol.rendezvous.looking import Listed
from hubbub.protocol.rendezvous.rendezvous import Options, Rendezvous
from hubbub.protocol.rendezvous.roles import Role
from hubbub.protocol.rendezvous.seat import Place
from hubbub.protocol.rendezvous.service import Service
from hubbub.wire.header import NOTICE, decode
from hubbub.wire.services import (
    Inquiry,
    Inventory,
    Managed,
    Record,
    decode_notice,
    encode_notice,
    service_key,
)

KEY = service_key("hype-news")
FRAME_BYTES_MAX = 1500 - 48


def node_of(number: int) -> bytes:
    return number.to_bytes(12, "big")


class Pair:
    """A manager, and a guest who looks on."""

    def __init__(self, subscribers: int) -> None:
        self.manager = self._open(1, is_guest=False)
        self.guest = self._open(2, is_guest=True)
        record = Record(node_of(1), "h", 1, 1, 1, 0)
        self.guest.view.apply(0, record, ("h", 1))
        service = self.manager.manager.services[KEY] = Service(KEY)
        service.name, service.role, service.epoch = "n" * 255, Role.MANAGING, 3
        for number in range(subscribers):
            service.listing.subscribe(0, node_of(100 + number), 1, 0, None, SERVICE_LEASE)

    def _open(self, number: int, *, is_guest: bool) -> Rendezvous:
        options = Options(is_guest=is_guest)
        random = Random(number)
        return Rendezvous(0, node_of(number), number, 7, random, seeds=[], options=options)

    def ask(self) -> Listed:
        return self.guest.looking.ask_subscribers(0, node_of(1), KEY)

    def carry(self) -> list[bytes]:
        """Bring frames to and fro; return those of the manager."""
        for _, frame in take(self.guest):
            self.manager.receive(0, frame, ("h", 2))
        frames = [frame for _, frame in take(self.manager)]
        for frame in frames:
            self.guest.receive(0, frame, ("h", 1))
        return frames


def take(machine: Rendezvous) -> list[tuple[Place, bytes]]:
    machine.flush()
    sent = [one for one in machine.out if decode(one[1]).kind == NOTICE]
    machine.out.clear()
    return sent


@pytest.mark.parametrize("count", [0, 1, INVENTORY_NODES, INVENTORY_NODES + 1, 300])
def test_all_subscribers_are_told_in_frames_that_need_not_be_cut(count: int) -> None:
    pair = Pair(count)
    listed = pair.ask()
    frames = pair.carry()
    assert max(map(len, frames)) <= FRAME_BYTES_MAX
    assert listed.is_over and listed.service is not None
    assert (listed.service.epoch, listed.service.subscribers) == (3, count)
    assert listed.nodes == {node_of(100 + number) for number in range(count)}


def test_of_a_long_list_so_many_are_told_and_how_many_there_are() -> None:
    pair = Pair(INVENTORY_NODES_MAX + 500)
    listed = pair.ask()
    assert len(pair.carry()) == INVENTORY_NODES_MAX // INVENTORY_NODES
    assert listed.is_over and listed.service is not None
    assert listed.service.subscribers == INVENTORY_NODES_MAX + 500
    assert len(listed.nodes) == INVENTORY_NODES_MAX


def test_who_does_not_manage_it_says_so_and_who_is_not_known_is_not_asked() -> None:
    pair = Pair(0)
    pair.manager.manager.services.clear()
    listed = pair.ask()
    pair.carry()
    assert listed.is_over and listed.service is None
    assert pair.guest.looking.ask_subscribers(0, node_of(9), KEY).is_over


def test_own_list_needs_no_frame() -> None:
    pair = Pair(200)
    listed = pair.manager.looking.ask_subscribers(0, node_of(1), KEY)
    assert listed.is_over and len(listed.nodes) == 200 and not take(pair.manager)


def test_part_that_is_lost_leaves_the_list_open() -> None:
    pair = Pair(INVENTORY_NODES + 1)
    listed = pair.ask()
    [(_, inquiry)] = take(pair.guest)
    pair.manager.receive(0, inquiry, ("h", 2))
    first, _ = take(pair.manager)
    pair.guest.receive(0, first[1], ("h", 1))
    assert not listed.is_over and len(listed.nodes) == INVENTORY_NODES


def test_list_is_believed_of_the_manager_alone_and_no_longer_than_it_may_be() -> None:
    listed = Listed(node_of(1))
    looking = Pair(0).guest.looking
    looking._questions[5] = listed
    known = [Managed(KEY, "x", 1, 1, 0xFFFF_FFFF)]
    looking.take(node_of(3), Inventory(5, known, [], [node_of(1)]))
    assert not listed.nodes
    for first in range(0, 2 * INVENTORY_NODES_MAX, INVENTORY_NODES):
        nodes = [node_of(first + number) for number in range(INVENTORY_NODES)]
        looking.take(node_of(1), Inventory(5, known, [], nodes))
    assert len(listed.nodes) == INVENTORY_NODES_MAX and listed.is_over


def test_questions_that_nobody_answers_are_bounded() -> None:
    pair = Pair(0)
    for _ in range(3 * INQUIRIES_MAX):
        pair.ask()
    assert len(pair.guest.looking._questions) <= INQUIRIES_MAX


def test_nodes_that_do_not_know_lists_yet_are_understood_and_understand() -> None:
    inquiry = encode_notice(0, Inquiry(7, KEY, "", True))
    plain = encode_notice(0, Inquiry(7, KEY, ""))
    assert decode_notice(plain[:4] + b"\x94" + plain[5:-1]) == (0, Inquiry(7, KEY, ""))
    assert decode_notice(inquiry[:4] + b"\x96" + inquiry[5:] + b"\xc0") == (
        0, Inquiry(7, KEY, "", True),
    )  # fmt: skip

"""Those who send bare messages: what is counted for them, and what becomes of their lines."""

from random import Random

import pytest

from hubbub.limits import BARE_PUBLISHERS_MAX, MS, SECOND, SERVICE_PAYLOAD_BYTES_MAX
from hubbub.protocol.rendezvous.client import FIFO
from hubbub.protocol.rendezvous.first_version import stranger_at
from hubbub.protocol.rendezvous.placement import XorPlacement
from hubbub.protocol.rendezvous.rendezvous import Rendezvous
from hubbub.protocol.rendezvous.seat import Delivered, Seat
from hubbub.protocol.rendezvous.view import State, View
from hubbub.wire.header import HEADER_BYTES, MEMBERS, SERVICE
from hubbub.wire.services import (
    BARE,
    NEWS,
    PUBLISH,
    SUBSCRIBE_SERVICE,
    UNSUBSCRIBE_SERVICE,
    Extra,
    Members,
    Message,
    Record,
    Request,
    distance,
    encode_members,
    encode_message,
    encode_request,
    node_key,
    service_key,
)

NODE = b"abcdefghijkl"
OTHER = b"other......."
PASSING = b"passing-on.."


def _name() -> str:
    """Return a service that the first node manages."""
    nodes, names = (NODE, OTHER, PASSING), (f"news-{number}" for number in range(1000))
    return next(
        name
        for name in names
        if min(nodes, key=lambda node: distance(node_key(node), service_key(name))) == NODE
    )


NAME = _name()
KEY = service_key(NAME)
PLACE = ("10.9.9.9", 9)
STRANGER = stranger_at(PLACE)


def open_one(life: int = 5) -> Rendezvous:
    return Rendezvous(0, NODE, life, 7, Random(1), seeds=[])


def send(machine: Rendezvous, now: int, type: int, rest: bytes = b"", key: bytes = KEY) -> None:
    machine.receive(now, encode_message(Message(type, key, rest)), PLACE)


def heard(machine: Rendezvous) -> list[Delivered]:
    return machine.seat.deliveries


def introduce(machine: Rendezvous, now: int) -> None:
    """Let a member be known at the place of the stranger."""
    seat = Seat(OTHER, 6, 7, Random(2), now)
    members = Members(NEWS, 0, bytes(12), 0, [Record(OTHER, "", 0, 77, 6, 0)])
    machine.receive(now, seat.make_frame(MEMBERS, encode_members(members)), PLACE)


def listed(machine: Rendezvous) -> list[bytes]:
    service = machine.manager.services.get(KEY)
    return [] if service is None else [line.node for line in service.listing]


def frames_to_it(machine: Rendezvous) -> int:
    """Return how many messages of services go to the place of the stranger."""
    machine.flush()
    sent = [data for place, data in machine.out if place == PLACE]
    machine.out.clear()
    return sum(len(data) < HEADER_BYTES or data[3] == SERVICE for data in sent)


# Numbers.


def test_who_asks_for_order_waits_for_no_message_of_the_first_version() -> None:
    machine = open_one()
    machine.subscribe(0, NAME, order=FIFO)
    for number in range(5):
        send(machine, (1 + number) * SECOND, PUBLISH, b"%d" % number)
        assert len(heard(machine)) == 1 + number
    assert [one.sequence for one in heard(machine)] == [1, 2, 3, 4, 5]


def test_each_service_of_a_publisher_is_counted_apart() -> None:
    machine = open_one()
    for name in ("a", "b"):
        machine.subscribe(0, name, order=FIFO)
    for name in ("a", "b", "a"):
        send(machine, MS, PUBLISH, b"x", service_key(name))
    assert [(one.name, one.sequence) for one in heard(machine)] == [("a", 1), ("b", 1), ("a", 2)]


def test_publisher_that_was_forgotten_is_counted_anew_and_heard_at_once() -> None:
    machine = open_one()
    machine.subscribe(0, NAME, order=FIFO)
    send(machine, MS, PUBLISH, b"before")
    for number in range(BARE_PUBLISHERS_MAX):
        key = number.to_bytes(20, "big")
        machine.receive(MS, encode_message(Message(PUBLISH, key, b"x")), ("10.9.9.8", 9))
    assert len(machine.first_version._counts) == BARE_PUBLISHERS_MAX
    send(machine, MS, PUBLISH, b"after")
    assert [one.payload for one in heard(machine)] == [b"before", b"after"]
    assert len({one.incarnation for one in heard(machine)}) == 2


def test_node_that_was_started_again_does_not_count_on_where_it_was() -> None:
    machines = [open_one(life) for life in (5, 6)]
    for machine in machines:
        machine.subscribe(0, NAME)
        send(machine, MS, PUBLISH, b"x")
    assert len({heard(machine)[0].incarnation for machine in machines}) == 2


@pytest.mark.parametrize(("size_bytes", "is_taken"), [(0, True), (1, False), (5000, False)])
def test_bare_message_that_no_envelope_could_carry_is_refused(
    size_bytes: int, is_taken: bool
) -> None:
    machine = open_one()
    machine.subscribe(0, NAME)
    send(machine, MS, PUBLISH, bytes(SERVICE_PAYLOAD_BYTES_MAX + size_bytes))
    assert bool(heard(machine)) is is_taken
    assert machine.seat.drops["size"] == (not is_taken)


# Lines.


def test_stranger_that_turns_out_to_be_a_member_has_one_line() -> None:
    machine = open_one()
    send(machine, MS, SUBSCRIBE_SERVICE)
    assert listed(machine) == [STRANGER]
    introduce(machine, 2 * MS)
    assert listed(machine) == [OTHER]
    machine.publish(3 * MS, NAME, b"x")
    assert frames_to_it(machine) == 1
    send(machine, 4 * MS, UNSUBSCRIBE_SERVICE)
    assert listed(machine) == []


def test_member_that_subscribes_itself_is_no_stranger_any_more() -> None:
    machine = open_one()
    machine.subscribe(0, NAME)
    introduce(machine, MS)
    send(machine, 2 * MS, SUBSCRIBE_SERVICE)
    listing = machine.manager.services[KEY].listing
    listing.subscribe(3 * MS, STRANGER, 1, BARE, PLACE, SECOND)  # As a list from elsewhere has it.
    send(machine, 4 * MS, SUBSCRIBE_SERVICE)
    assert sorted(listed(machine)) == [NODE, OTHER]


def test_subscription_passed_on_by_who_does_not_know_the_member_is_that_of_the_member() -> None:
    machine = open_one()
    machine.subscribe(0, NAME)
    introduce(machine, MS)
    seat = Seat(PASSING, 8, 7, Random(3), MS)
    for type, expected in ((SUBSCRIBE_SERVICE, [NODE, OTHER]), (UNSUBSCRIBE_SERVICE, [NODE])):
        message, extra = Message(type, KEY), Extra(place=PLACE)
        stamp = 1000 + type
        request = Request(1, BARE, 1, STRANGER, 8, stamp, 0, 0, 0, message, extra)
        machine.receive(2 * MS, seat.make_frame(SERVICE, encode_request(request)), ("10.0.0.4", 1))
        assert sorted(listed(machine)) == expected


def test_member_that_ended_its_subscription_does_not_get_it_back_from_the_stranger() -> None:
    machine = open_one()
    send(machine, MS, SUBSCRIBE_SERVICE)
    listing = machine.manager.services[KEY].listing
    listing.unsubscribe(2 * MS, OTHER, listing.lines[STRANGER].stamp + 1)
    introduce(machine, 3 * MS)
    assert listed(machine) == []


def test_who_is_at_an_address_is_who_is_there_now() -> None:
    view = View(Seat(NODE, 1, 7, Random(1), 0), XorPlacement(), SECOND)
    nodes = [b"dead........", b"present.....", b"left........"]
    for node in nodes:
        view.apply(0, Record(node, *PLACE, 1, 1, 0), PLACE)
    view.apply(0, Record(nodes[2], *PLACE, 1, 1, int(State.LEFT)), PLACE)
    view.apply(0, Record(nodes[0], *PLACE, 1, 1, int(State.DEAD)), PLACE)
    found = view.at(PLACE)
    assert found is not None and found.node == nodes[1]
    view.apply(0, Record(nodes[1], *PLACE, 1, 1, int(State.LEFT)), PLACE)
    found = view.at(PLACE)
    assert found is not None and found.node == nodes[0]  # It may only stand still.
    view.apply(0, Record(nodes[0], *PLACE, 1, 1, int(State.LEFT)), PLACE)
    assert view.at(PLACE) is None

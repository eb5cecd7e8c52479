"""A node that speaks the first version: what it sends is bit for bit what that one sent."""

from random import Random

import pytest

from hubbub.limits import MS, SECOND
from hubbub.protocol.rendezvous.bare import say
from hubbub.protocol.rendezvous.rendezvous import Options, Rendezvous
from hubbub.wire.header import MAGIC
from hubbub.wire.payloads import join
from hubbub.wire.services import (
    ANYCAST,
    BARE,
    BATCH,
    CHANGE_SERVICE_MANAGER,
    INFO,
    LEAVING,
    NOTHING,
    PROMPT,
    PUBLISH,
    RETAIN,
    SUBSCRIBE_SERVICE,
    UNSUBSCRIBE_SERVICE,
    Entry,
    Extra,
    Message,
    Request,
    decode_message,
    distance,
    encode_message,
    join_ids,
    node_key,
    service_key,
)

# The ids that were published, and the one of them that a published service belongs to.
IDS = [
    bytes.fromhex(text)
    for text in (
        "85a9d4c4ded287750fc0ed32",
        "e779346c669c17f434c8ce0e",
        "101112010203040506070809",
        "66d8f2206a56dbe991233bc2",
    )
]
KEY = bytes.fromhex("feb5c6ae8ab97adf53f8bc92e5516982b6200ea4")
MANAGER = IDS[3]
OWN = IDS[0]


def _request(message: Message, flags: int = 0, extra: Extra = NOTHING, hops: int = 0) -> Request:
    return Request(9, flags, hops, OWN, 5, 77, 3, 0, 0, message, extra)


def _said(request: Request) -> list[bytes]:
    messages = say(request, OWN)
    assert messages is not None
    return [encode_message(message) for message in messages]


def test_subscription_and_its_end_are_21_bytes() -> None:
    named = Extra(name="news")
    assert _said(_request(Message(SUBSCRIBE_SERVICE, KEY), extra=named)) == [b"\0" + KEY]
    assert _said(_request(Message(UNSUBSCRIBE_SERVICE, KEY))) == [b"\1" + KEY]


def test_published_message_is_35_bytes() -> None:
    (data,) = _said(_request(Message(PUBLISH, KEY, b"HelloHypeWorld")))
    assert data == b"\2" + KEY + b"HelloHypeWorld" and len(data) == 35


def test_message_of_anybody_goes_to_subscribers_without_its_origin() -> None:
    info = _request(Message(INFO, KEY, b"x"))._replace(origin=IDS[1], order=5)
    assert _said(info) == [b"\3" + KEY + b"x"]


def test_batch_goes_message_by_message() -> None:
    batch = join([b"a", b"bc"])
    request = _request(Message(PUBLISH, KEY, batch), BATCH)
    assert _said(request) == [b"\2" + KEY + b"a", b"\2" + KEY + b"bc"]


def test_change_of_managers_has_those_who_subscribe_and_no_others() -> None:
    entries = [Entry(IDS[1], 5, True), Entry(IDS[2], 6, False)]
    message = Message(CHANGE_SERVICE_MANAGER, KEY, join_ids(MANAGER, [IDS[1]]))
    change = _request(message, LEAVING, Extra(name="news", entries=entries))
    assert _said(change) == [b"\4" + KEY + MANAGER + IDS[1]]


@pytest.mark.parametrize(
    "request_",
    [
        _request(Message(PUBLISH, KEY, b"")),
        _request(Message(INFO, KEY, b"")),
        _request(Message(PUBLISH, KEY, b"x"), RETAIN),
        _request(Message(PUBLISH, KEY, b"x"), ANYCAST),
        _request(Message(PUBLISH, KEY, b"x"), PROMPT),
        _request(Message(PUBLISH, KEY, b"x"), extra=Extra(subject="/a")),
        _request(Message(PUBLISH, KEY, b"x"), extra=Extra(credentials=b"k")),
        _request(Message(PUBLISH, KEY, b"x"), hops=1),
        _request(Message(PUBLISH, KEY, b"x"))._replace(origin=IDS[1]),
        _request(Message(INFO, KEY, b"x"), extra=Extra(nodes=[IDS[1]])),
        _request(Message(SUBSCRIBE_SERVICE, KEY), extra=Extra(patterns=["/a"])),
        _request(Message(UNSUBSCRIBE_SERVICE, KEY), extra=Extra(credentials=b"k")),
        _request(Message(CHANGE_SERVICE_MANAGER, KEY, MANAGER), extra=Extra(parts=2)),
        _request(
            Message(CHANGE_SERVICE_MANAGER, KEY, MANAGER),
            extra=Extra(entries=[Entry(IDS[1], 1, True, BARE)]),
        ),
    ],
)
def test_what_the_first_version_has_no_words_for_goes_in_an_envelope(request_: Request) -> None:
    assert say(request_, OWN) is None


class Town:
    """Nodes with published ids, all of which speak the first version."""

    def __init__(self, count: int) -> None:
        self.places = [(f"10.0.0.{number}", 1) for number in range(count)]
        self.machines: dict[int, Rendezvous] = {}
        self.bare: list[tuple[int, bytes]] = []
        self.now = 0

    def open(self, at: int) -> Rendezvous:
        options = Options(is_first_version=True)
        seeds = self.places[:1] if self.machines else []
        machine = Rendezvous(self.now, IDS[at], 5, 7, Random(at), seeds=seeds, options=options)
        self.machines[at] = machine
        return machine

    def pass_time(self, time_ns: int) -> None:
        end = self.now + time_ns
        while self.now < end:
            self.now += MS
            for at, machine in list(self.machines.items()):
                machine.advance(self.now)
                machine.flush()
                while machine.out:
                    self._bring(at, *machine.out.popleft())

    def _bring(self, at: int, place: tuple[str, int], data: bytes) -> None:
        if data[:2] != MAGIC.to_bytes(2, "big"):
            assert decode_message(data) is not None
            self.bare.append((at, data))
        target = self.machines.get(self.places.index(place))
        if target is not None:
            target.receive(self.now, data, self.places[at])

    def heard(self, at: int) -> list[bytes]:
        return [p for run in self.machines[at].seat.deliveries for p in run.payloads]


def _name() -> str:
    """Return a service that the last of the published ids manages, and after it the second."""

    def ranked(name: str) -> list[bytes]:
        return sorted(IDS, key=lambda node: distance(node_key(node), service_key(name)))

    names = (f"service-{number}" for number in range(1000))
    return next(name for name in names if ranked(name)[:2] == [IDS[3], IDS[1]])


def test_nodes_that_speak_nothing_else_share_a_service_and_hand_it_over() -> None:
    town, name = Town(4), _name()
    key = service_key(name)
    for at in range(3):
        town.open(at)
    town.pass_time(5 * SECOND)
    town.machines[0].subscribe(town.now, name)
    town.machines[2].subscribe(town.now, name)
    town.pass_time(1 * SECOND)
    assert sorted(town.bare) == [(0, b"\0" + key), (2, b"\0" + key)]

    town.bare.clear()
    town.machines[2].publish(town.now, name, b"HelloHypeWorld")
    town.pass_time(1 * SECOND)
    info = b"\3" + key + b"HelloHypeWorld"
    assert town.bare == [(2, b"\2" + key + b"HelloHypeWorld"), (1, info), (1, info)]
    assert town.heard(0) == town.heard(2) == [b"HelloHypeWorld"]

    town.bare.clear()
    town.open(3)  # Which is closer.
    town.pass_time(8 * SECOND)
    changes = [one for one in town.bare if one[1][0] == CHANGE_SERVICE_MANAGER]
    to_manager = b"\4" + key + IDS[3]
    assert sorted(changes) == sorted(
        [(1, to_manager + IDS[0] + IDS[2]), (1, to_manager), (1, to_manager)]
    )
    listing = town.machines[3].manager.services[key].listing
    assert sorted(line.node for line in listing) == sorted([IDS[0], IDS[2]])
    assert town.machines[0].client.subscribed[key].manager == IDS[3]


def test_empty_payload_comes_in_an_envelope_among_bare_ones() -> None:
    town, name = Town(4), _name()
    for at in range(3):
        town.open(at)
    town.pass_time(5 * SECOND)
    town.machines[0].subscribe(town.now, name)
    town.pass_time(1 * SECOND)
    town.bare.clear()
    town.machines[2].publish(town.now, name, b"")
    town.pass_time(1 * SECOND)
    assert not town.bare
    assert town.heard(0) == [b""]


def test_bare_subscriber_is_not_sent_an_empty_payload() -> None:
    town, name = Town(1), _name()
    machine = town.open(0)
    machine.receive(MS, b"\0" + service_key(name), ("10.9.9.9", 9))
    machine.publish(2 * MS, name, b"")
    machine.publish(3 * MS, name, b"x")
    machine.flush()
    sent = [data for place, data in machine.out if place == ("10.9.9.9", 9)]
    assert sent == [b"\3" + service_key(name) + b"x"]
    assert machine.seat.counters["empty_for_first_version"] == 1

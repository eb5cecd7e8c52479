"""What a manager does with requests: each once, only what is allowed, none that leaps too far."""

from random import Random

import pytest

from hubbub.limits import (
    HELD_REQUESTS_BYTES_MAX,
    HELD_REQUESTS_MAX,
    MS,
    SECOND,
    SEEN_PUBLISHERS_MAX,
    SERVICE_EPOCH_LEAP,
    SERVICE_EPOCH_MAX,
    SERVICE_NUMBER_MAX,
    SERVICE_PAYLOAD_BYTES_MAX,
)
from hubbub.protocol.rendezvous.client import FIFO
from hubbub.protocol.rendezvous.refusals import Refusals
from hubbub.protocol.rendezvous.rendezvous import Options
from hubbub.protocol.rendezvous.seat import Seat
from hubbub.protocol.rendezvous.service import Service
from hubbub.simulation.services import ServiceNode, Town
from hubbub.simulation.stage import Stage
from hubbub.wire.header import HEADER_BYTES, NOTICE, SERVICE
from hubbub.wire.services import (
    ANSWERS,
    CHANGE_SERVICE_MANAGER,
    NO_LOCAL,
    PUBLISH,
    REFUSED,
    SUBSCRIBE_SERVICE,
    TAKEN,
    UNAVAILABLE,
    Copy,
    Entry,
    Extra,
    ListTaken,
    Message,
    Request,
    decode_notice,
    encode_notice,
    encode_request,
    service_key,
)

NAME = "news"


def apart(town: Town, count: int) -> list[ServiceNode]:
    """Return some nodes that do not manage the service."""
    return [node for node in town.alive() if node is not town.closest(NAME)][:count]


def test_request_to_any_one_that_is_repeated_is_done_by_one_member() -> None:
    """Answers that took longer than 100 ms had each request done by two members."""
    town = Town(Stage(1))
    town.open_many(5)
    *members, asker = apart(town, 4)
    done: list[bytes] = []
    for node in members:
        node.subscribe(NAME, flags=ANSWERS)
        node.answer = lambda payload: (done.append(payload), payload)[1]
    town.settle([NAME])
    town.stage.faults(delay_ns=60 * MS)
    asked = [b"1", b"2", b"3"]
    for payload in asked:
        asker.request_any(NAME, payload)
        town.world.run_for(1 * SECOND)
    assert asker.machine.seat.counters["repeated"]
    assert done == asked
    assert [one.payload for one in asker.settled] == asked


def test_who_may_not_publish_does_not_reach_wildcards_of_a_service_without_subscribers() -> None:
    """Nobody asked the policy where there was no list, so what it refused came all the same."""
    outlaws: set[bytes] = set()
    judged: set[tuple[str, bytes, str]] = set()

    def policy(action: str, key: bytes, name: str, node: bytes, credentials: bytes) -> bool:
        judged.add((action, key, name))
        return not (action == "publish" and node in outlaws)

    town = Town(Stage(1), Options(policy=policy))
    town.open_many(5)
    outlaw, citizen, reader = apart(town, 3)
    outlaws.add(outlaw.id)
    reader.want_everywhere(["/..."])
    town.world.run_for(1 * SECOND)
    for node, payload in ((outlaw, b"forbidden"), (citizen, b"allowed")):
        node.publish(NAME, payload, subject="/plant/x")
        town.world.run_for(1 * SECOND)
    assert [one.delivered.payload for one in reader.heard[""]] == [b"allowed"]
    assert [one.status for one in outlaw.settled + citizen.settled] == [REFUSED, TAKEN]
    reader.want_everywhere([])
    town.world.run_for(1 * SECOND)
    wild = service_key("")
    assert judged == {
        *(("subscribe", wild, ""), ("unsubscribe", wild, "")),
        ("publish", service_key(NAME), ""),
    }


@pytest.mark.parametrize("subject", ["", "/plant/x"])
def test_publisher_that_wants_nothing_of_its_own_does_not_count_as_its_subscriber(
    subject: str,
) -> None:
    """It was told that its message went to one subscriber, which was itself, and had nothing."""
    town = Town(Stage(1))
    town.open_many(4)
    publisher, other = apart(town, 2)
    publisher.subscribe(NAME, flags=NO_LOCAL)
    town.settle([NAME])
    ends = []
    for change in (None, other.subscribe, other.unsubscribe):
        if change is not None:
            change(NAME)
            town.world.run_for(1 * SECOND)
        for node in (publisher, other):
            node.settled.clear()
            for number in range(3):  # The first goes the long way, the last ones the short way.
                node.publish(NAME, b"%d %d" % (len(ends), number), subject=subject)
                town.world.run_for(100 * MS)
            ends.append({(one.status, one.number) for one in node.settled})
    alone, together = [{(UNAVAILABLE, 0)}, {(TAKEN, 1)}], [{(TAKEN, 1)}, {(TAKEN, 2)}]
    assert ends == alone + together + alone


class Mallory:
    """One that is no node, and says whatever it likes."""

    def __init__(self, town: Town) -> None:
        self._town = town
        self._seat = Seat(b"mallorymallo", 5, 7, Random(1), town.world.now)

    def say(self, to: ServiceNode, message: Message, epoch: int, extra: Extra) -> None:
        """Send a request."""
        request = Request(1, 0, 0, self._seat.node, 5, 1, epoch, 30_000, 0, message, extra)
        self._send(to, SERVICE, encode_request(request))

    def say_part(self, to: ServiceNode, part: int, parts: int, subscriber: bytes) -> None:
        """Send a part of a list."""
        message = Message(CHANGE_SERVICE_MANAGER, service_key(NAME), to.id)
        entries = [Entry(subscriber, 1, True)]
        self.say(to, message, 9, Extra(part=part, parts=parts, entries=entries))

    def tell(self, to: ServiceNode, notice: Copy) -> None:
        """Send a notice."""
        self._send(to, NOTICE, encode_notice(1, notice))

    def _send(self, to: ServiceNode, kind: int, body: bytes) -> None:
        to.arrive(self._seat.make_frame(kind, body), ("10.66.0.1", 1))


def lie(town: Town, how: str) -> ServiceNode:
    """Tell a manager, or who comes to be one, of the highest numbers that there are."""
    mallory, ranked, key = Mallory(town), town.ranked(NAME), service_key(NAME)
    if how == "subscription":
        message = Message(SUBSCRIBE_SERVICE, key)
        mallory.say(ranked[0], message, SERVICE_EPOCH_MAX, Extra(place=("10.66.0.1", 1)))
    elif how == "list":
        message = Message(CHANGE_SERVICE_MANAGER, key, ranked[0].id)
        extra = Extra(last_order=SERVICE_NUMBER_MAX)
        mallory.say(ranked[0], message, SERVICE_EPOCH_MAX, extra)
    else:
        numbers = (SERVICE_EPOCH_MAX, SERVICE_NUMBER_MAX)
        mallory.tell(ranked[1], Copy(key, NAME, *numbers, 0, 0, False, []))
        return ranked[1]
    return ranked[0]


@pytest.mark.parametrize("how", ["subscription", "list", "copy"])
def test_one_frame_with_the_highest_numbers_does_not_end_a_service(how: str) -> None:
    """The next epoch, or number of a message, had no place in a frame: nothing came any more."""
    town = Town(Stage(3))
    town.open_many(6)
    readers = apart(town, 4)
    for node in readers:
        node.subscribe(NAME)
    town.settle([NAME])
    lied_to = lie(town, how)
    assert lied_to.machine.seat.drops["leap"] == 1
    town.check_calm([NAME])
    town.ranked(NAME)[0].crash()
    town.settle([NAME])
    town.ranked(NAME)[0].close()
    town.settle([NAME])
    town.check_calm([NAME])
    key = service_key(NAME)
    epochs = [node.machine.manager.services[key].epoch for node in town.managers(NAME)]
    assert max(epochs) < 2 * SERVICE_EPOCH_LEAP


def overhear_taken(town: Town) -> list[int]:
    """Write down the epoch of each list that anybody says it has taken from now on."""
    taken: list[int] = []
    watch = town.watch.sent

    def note(node: ServiceNode, place: tuple[object, ...], frame: bytes) -> None:
        watch(node, place, frame)
        decoded = decode_notice(frame[HEADER_BYTES:]) if frame[3] == NOTICE else None
        if decoded is not None and isinstance(decoded[1], ListTaken):
            taken.append(decoded[1].offered)

    town.watch.sent = note  # type: ignore[method-assign]
    return taken


def test_parts_of_a_list_beyond_those_announced_are_refused_and_none_is_kept_once_taken() -> None:
    """A list of one part took all that came under other numbers, and kept it for good."""
    town = Town(Stage(3))
    town.open_many(3)
    manager, mallory = town.closest(NAME), Mallory(town)
    subscribers = [bytes([65 + number]) * 12 for number in range(4)]
    taken = overhear_taken(town)
    mallory.say_part(manager, 7, 2, subscribers[3])
    assert manager.machine.seat.drops["part"] == 1
    for part in (0, 1):
        mallory.say_part(manager, part, 2, subscribers[part])
    service = manager.machine.manager.services[service_key(NAME)]
    assert taken == [9] and town.listed(manager, NAME) == {*subscribers[:2]}
    mallory.say_part(manager, 1, 2, subscribers[1])
    assert taken == [9, 9]
    assert service.arriving is not None and not service.arriving.parts


def test_list_that_is_offered_again_in_fewer_parts_is_taken_when_all_of_these_came() -> None:
    """A part of the first try counted as one of the second, and its lines were missing."""
    town = Town(Stage(3))
    town.open_many(3)
    manager, mallory = town.closest(NAME), Mallory(town)
    subscribers = [bytes([65 + number]) * 12 for number in range(3)]
    mallory.say_part(manager, 2, 3, subscribers[2])
    mallory.say_part(manager, 0, 2, subscribers[0])
    assert not town.managers(NAME)
    mallory.say_part(manager, 1, 2, subscribers[1])
    assert town.listed(manager, NAME) == {*subscribers[:2]}


@pytest.mark.parametrize("size_bytes", [10, SERVICE_PAYLOAD_BYTES_MAX])
def test_requests_that_wait_for_a_list_are_bounded_by_number_and_bytes(size_bytes: int) -> None:
    service, payload = Service(service_key(NAME)), bytes(size_bytes)
    message = Message(PUBLISH, service.key, payload)
    request = Request(1, 0, 0, b"abcdefghijkl", 5, 1, 0, 0, 0, message, Extra())
    while service.hold(request):
        assert len(service.held) <= HELD_REQUESTS_MAX
    held_bytes = sum(len(one.message.rest) for one in service.held)
    limit = min(HELD_REQUESTS_MAX, HELD_REQUESTS_BYTES_MAX // size_bytes)
    assert limit - 1 <= len(service.held) <= limit and held_bytes <= HELD_REQUESTS_BYTES_MAX
    assert service.release() and service.hold(request)


@pytest.mark.parametrize("allowed", ["yny", "nny", "ynnyny", "ynyyn"])
@pytest.mark.parametrize("is_quick", [False, True])
def test_nobody_who_keeps_the_order_waits_for_a_message_that_was_refused(
    allowed: str, is_quick: bool
) -> None:
    """The next message of the same publisher came 2 s late: the refused one might be on its way."""
    may = lambda action, key, name, node, credentials: credentials != b"n"  # noqa: E731
    town = Town(Stage(2), Options(policy=may))
    town.open_many(4)
    publisher, reader = apart(town, 2)
    reader.subscribe(NAME, order=FIFO)
    town.settle([NAME])
    for number, answer in enumerate(allowed):
        payload, now = b"%d" % number, town.world.now
        publisher.machine.publish(now, NAME, payload, credentials=answer.encode())
        publisher._turn()
        if not is_quick:
            town.world.run_for(50 * MS)
    town.world.run_for(100 * MS)
    heard = [one.delivered.payload for one in reader.heard[NAME]]
    assert heard == [b"%d" % number for number, answer in enumerate(allowed) if answer == "y"]


def test_numbers_that_were_refused_are_told_once_with_the_message_right_behind_them() -> None:
    refusals, lane = Refusals(), (b"abcdefghijkl", 7, "")
    refusals.note(lane, 4, 2)
    refusals.note(lane, 4, 2)  # It came again.
    refusals.note(lane, 6, 1)
    assert [refusals.take_before(lane, number) for number in (3, 8, 7, 7)] == [0, 0, 3, 0]
    refusals.note(lane, 9, 1)
    refusals.note(lane, 12, 1)
    assert [refusals.take_before(lane, number) for number in (10, 13)] == [0, 1]
    for life in range(SEEN_PUBLISHERS_MAX + 5):
        refusals.note((b"abcdefghijkl", life, ""), 1, 1)
    assert len(refusals) == SEEN_PUBLISHERS_MAX

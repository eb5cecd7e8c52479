"""The group of the services: who is counted on for it, and what is taken from it."""

from itertools import pairwise
from random import Random

import pytest

from hubbub.limits import (
    GROUP_BELIEF,
    GROUP_DEAF,
    GROUP_DEAF_MAX,
    GROUP_MEMORY,
    GROUP_MIN,
    GROUP_TRIAL,
    GROUP_TRIAL_MAX,
    HOP_TIMEOUT,
    HOP_TRIES,
    HOP_WINDOW,
    MS,
)
from hubbub.protocol.rendezvous.group import Group, Target
from hubbub.protocol.rendezvous.hops import Hops
from hubbub.protocol.rendezvous.rendezvous import Rendezvous
from hubbub.protocol.rendezvous.seat import Place, Seat
from hubbub.simulation.services import GROUP, Town
from hubbub.simulation.stage import Stage
from hubbub.wire.header import ANSWER, HEADER_BYTES, NOTICE, SERVICE
from hubbub.wire.services import (
    ANYCAST,
    BATCH,
    HEARS_GROUP,
    INFO,
    NO_LOCAL,
    NOBODY,
    NOTHING,
    PUBLISH,
    TAKEN,
    Answer,
    Extra,
    Message,
    Query,
    Request,
    decode_answers,
    encode_notice,
    encode_request,
    service_key,
)

NODES = [bytes([number]) * 12 for number in range(1, 9)]
TARGETS: list[Target] = [(node, (f"10.0.0.{node[0]}", 1)) for node in NODES]
NAME = "news"
KEY = service_key(NAME)


class Manager:
    """One node that sends to a group, and what leaves it."""

    def __init__(self, place: Place | None = GROUP) -> None:
        self.seat = Seat(b"manager.....", 1, 7, Random(1), 0)
        self.hops = Hops(self.seat, lambda now, node: None, lambda now, node, frame: None)
        self.group = Group(self.seat, self.hops, place)
        self.ends: list[tuple[bytes, bool]] = []

    def send(self, now: int, targets: list[Target] = TARGETS, **fields: object) -> list[Place]:
        request = Request(0, 0, 0, NODES[0], 1, 1, 1, 0, 1, Message(INFO, KEY, b"21"), NOTHING)
        self.group.post(now, targets, request._replace(**fields), self._done)  # type: ignore[arg-type]
        return self.take_out()

    def _done(self, now: int, node: bytes, answer: Answer | None) -> None:
        self.ends.append((node, answer is not None))

    def take_out(self) -> list[Place]:
        places = [place for place, _ in self.seat.out]
        self.seat.out.clear()
        return places

    def acknowledge(self, now: int, nodes: list[bytes] = NODES) -> None:
        for node in nodes:
            self.hops.take(now, node, [Answer(self.hops.hop, TAKEN)])

    def believe(self, now: int, nodes: list[bytes] = NODES) -> None:
        for node in nodes:
            self.group.believe(now, node)


PLACES = [place for _, place in TARGETS]


def test_first_message_goes_both_ways_and_the_next_to_each() -> None:
    manager = Manager()
    assert manager.send(0) == [GROUP, *PLACES]
    assert manager.send(1 * MS) == PLACES


def test_one_frame_is_for_all_who_hear_the_group_and_each_is_waited_for() -> None:
    manager = Manager()
    manager.believe(0)
    assert manager.send(0) == [GROUP]
    manager.acknowledge(1 * MS, NODES[2:])
    manager.hops.advance(HOP_TIMEOUT)
    assert manager.take_out() == PLACES[:2]
    manager.acknowledge(HOP_TIMEOUT + MS, NODES[:2])
    assert manager.ends == [(node, True) for node in NODES[2:] + NODES[:2]]
    assert manager.seat.counters["group_receivers"] == len(NODES)


def test_who_does_not_hear_the_group_is_sent_it_beside() -> None:
    manager = Manager()
    manager.believe(0, NODES[:5])
    assert manager.send(0) == [GROUP, *PLACES[5:]]


@pytest.mark.parametrize("count", range(1, GROUP_MIN))
def test_few_are_sent_it_each(count: int) -> None:
    manager = Manager()
    manager.believe(0)
    assert manager.send(0, TARGETS[:count]) == PLACES[:count]


def test_without_a_group_nothing_is_tried_and_nobody_believed() -> None:
    manager = Manager(None)
    manager.believe(0)
    assert manager.send(0) == PLACES


@pytest.mark.parametrize(
    "fields",
    [
        {"extra": Extra(subject="/a")},
        {"extra": Extra(nodes=NODES[:1])},
        {"flags": ANYCAST},
        {"message": Message(PUBLISH, KEY, b"21")},
    ],
)
def test_only_plain_messages_go_to_the_group(fields: dict[str, object]) -> None:
    manager = Manager()
    manager.believe(0)
    assert manager.send(0, **fields) == PLACES


def test_what_a_policy_guards_goes_to_each() -> None:
    manager = Manager()
    manager.seat.policy = lambda action, key, name, node, credentials: True
    manager.believe(0)
    assert manager.send(0) == PLACES


def test_belief_ends_when_nobody_says_so_any_more() -> None:
    manager = Manager()
    manager.believe(0)
    manager.send(0)
    manager.acknowledge(1)
    assert manager.send(GROUP_BELIEF) == [GROUP, *PLACES]  # A trial again.


def test_who_missed_something_is_not_counted_on_for_a_while_whatever_it_says() -> None:
    manager = Manager()
    manager.believe(0)
    manager.send(0)
    manager.acknowledge(1, NODES[1:])
    manager.hops.advance(HOP_TIMEOUT)
    assert manager.take_out() == PLACES[:1]
    manager.believe(HOP_TIMEOUT + 1)
    assert manager.send(HOP_TIMEOUT + 2) == [GROUP, PLACES[0]]
    later = HOP_TIMEOUT + GROUP_DEAF
    manager.believe(later)
    assert manager.send(later) == [GROUP]


def test_pause_doubles_for_who_misses_again_and_begins_anew_for_who_did_not_for_long() -> None:
    manager = Manager()
    now, pauses = 0, []
    for _ in range(9):
        manager.group.missed(now, NODES[0])
        until_ns, pause_ns = manager.group._deaf[NODES[0]]
        manager.group.missed(until_ns - 1, NODES[0])  # It had been sent before.
        assert manager.group._deaf[NODES[0]] == (until_ns, pause_ns)
        pauses.append(pause_ns)
        now = until_ns + 1
    assert pauses[:3] == [GROUP_DEAF, 2 * GROUP_DEAF, 4 * GROUP_DEAF]
    assert pauses[-1] == GROUP_DEAF_MAX
    manager.group.missed(now + 5 * GROUP_DEAF_MAX, NODES[0])
    assert manager.group._deaf[NODES[0]][1] == GROUP_DEAF


def test_group_that_nobody_hears_is_tried_ever_more_seldom() -> None:
    manager = Manager()
    trials = []
    for now in range(0, 400 * GROUP_TRIAL, GROUP_TRIAL // 2):
        if GROUP in manager.send(now):
            trials.append(now)
        manager.acknowledge(now)
    pauses = [after - before for before, after in pairwise(trials)]
    assert pauses[:4] == [GROUP_TRIAL, 2 * GROUP_TRIAL, 4 * GROUP_TRIAL, 8 * GROUP_TRIAL]
    assert pauses[-1] == GROUP_TRIAL_MAX


def test_frame_to_the_group_takes_no_try_away_from_who_missed_it() -> None:
    manager = Manager()
    manager.believe(0)
    manager.send(0)
    manager.acknowledge(1, NODES[1:])
    manager.hops.advance(1 << 60)
    for number in range(1, 20):
        manager.hops.advance(number << 60)
    assert manager.take_out() == [PLACES[0]] * HOP_TRIES
    assert manager.ends[-1] == (NODES[0], False)


def test_who_has_no_room_is_not_sent_more_by_the_group() -> None:
    manager = Manager()
    manager.believe(0)
    for _ in range(HOP_WINDOW):
        assert manager.send(0) == [GROUP]
        manager.acknowledge(0, NODES[1:])
    assert manager.send(0) == [GROUP]  # It waits for the first of them.
    assert len(manager.hops.tracks[NODES[0]].waiting) == 1
    assert manager.seat.counters["group_receivers"] == (HOP_WINDOW + 1) * len(NODES) - 1


def test_who_is_gone_is_forgotten() -> None:
    manager = Manager()
    manager.believe(0)
    manager.group.missed(0, NODES[0])
    for node in NODES:
        manager.group.forget(node)
    assert not manager.group._hearing and not manager.group._deaf


# What is heard.


@pytest.fixture
def town() -> Town:
    town = Town(Stage(5), has_group=True)
    town.open_subscribed(6, NAME)
    return town


class Heard:
    """A subscriber, and frames of its manager that come by the group."""

    def __init__(self, town: Town) -> None:
        self.manager = town.closest(NAME)
        self.node = next(node for node in town.alive() if node is not self.manager)
        self.machine: Rendezvous = self.node.machine
        self.now = town.world.now

    def frame(self, kind: int = SERVICE, **fields: object) -> bytes:
        message = Message(INFO, KEY, b"21")
        request = Request(7, 0, 0, NODES[0], 1, 1, 1, 0, 1, message, NOTHING)
        request = request._replace(**fields)  # type: ignore[arg-type]
        return self.manager.machine.seat.make_frame(kind, encode_request(request))

    def hear(self, frame: bytes, place: Place | None = None) -> list[Answer]:
        """Return the answers of the subscriber."""
        seat = self.machine.seat
        seat.out.clear()
        self.machine.receive_group(self.now, frame, place or self.manager.address)
        self.machine.flush()
        self.machine.advance(self.now + 50 * MS)
        self.machine.flush()
        found = []
        for _, sent in seat.out:
            decoded = decode_answers(sent[HEADER_BYTES:]) if sent[3] == ANSWER else None
            found += [] if decoded is None else decoded[0]
        return found


def test_message_is_taken_once_and_the_answer_says_that_it_was_heard(town: Town) -> None:
    heard = Heard(town)
    assert heard.hear(heard.frame()) == [Answer(7, TAKEN, 0, HEARS_GROUP, NOBODY)]
    assert heard.hear(heard.frame()) == [Answer(7, TAKEN, 0, HEARS_GROUP, NOBODY)]
    assert [one.payloads for one in heard.machine.seat.deliveries] == [[b"21"]]


def test_answer_to_what_came_by_itself_says_so_too_and_not_for_ever(town: Town) -> None:
    heard = Heard(town)
    answer = Answer(7, TAKEN)
    place = heard.manager.address
    assert heard.machine.ear.mark(heard.now, place, answer) == answer
    heard.hear(heard.frame())
    assert heard.machine.ear.mark(heard.now, place, answer).number == HEARS_GROUP
    assert heard.machine.ear.mark(heard.now + GROUP_MEMORY, place, answer) == answer
    assert heard.machine.ear.mark(heard.now, ("10.9.9.9", 1), answer) == answer


@pytest.mark.parametrize(
    "fields",
    [
        {"message": Message(INFO, service_key("other"), b"21")},
        {"message": Message(PUBLISH, KEY, b"21")},
        {"flags": ANYCAST},
        {"flags": BATCH},  # The payload is none.
        {"extra": Extra(subject="/a")},
        {"sequence": 1 << 63},
    ],
)
def test_what_is_not_a_plain_message_for_us_is_left_alone(
    town: Town, fields: dict[str, object]
) -> None:
    heard = Heard(town)
    assert heard.hear(heard.frame(**fields)) == []
    assert not heard.machine.seat.deliveries


def test_other_kinds_are_left_alone(town: Town) -> None:
    heard = Heard(town)
    frame = heard.manager.machine.seat.make_frame(NOTICE, encode_notice(7, Query(KEY)) + bytes(99))
    assert heard.hear(frame) == []
    assert heard.machine.seat.drops["group_kind"] == 1


def test_nobody_is_answered_who_is_not_known_or_elsewhere(town: Town) -> None:
    heard = Heard(town)
    assert heard.hear(heard.frame(), ("10.9.9.9", 1)) == []
    stranger = Seat(b"stranger....", 1, heard.machine.seat.domain, Random(1), 0)
    frame = stranger.make_frame(SERVICE, heard.frame()[HEADER_BYTES:])
    assert heard.hear(frame, ("10.9.9.9", 1)) == []
    assert heard.hear(heard.frame()[:-9]) == []
    assert heard.hear(b"") == [] == heard.hear(bytes(200))
    assert not heard.machine.seat.deliveries and not heard.machine.ear.heard.get(("10.9.9.9", 1))


def test_damaged_frame_and_frame_of_another_domain_are_dropped(town: Town) -> None:
    heard = Heard(town)
    frame = bytearray(heard.frame())
    frame[-1] ^= 1
    assert heard.hear(bytes(frame)) == []
    assert heard.machine.seat.drops["checksum"] == 1
    other = Seat(heard.manager.id, heard.manager.life, 8, Random(1), 0)
    assert heard.hear(other.make_frame(SERVICE, heard.frame()[HEADER_BYTES:])) == []
    assert heard.machine.seat.drops["domain"] == 1
    assert not heard.machine.seat.deliveries


def test_own_message_is_not_heard_by_who_does_not_want_it(town: Town) -> None:
    heard = Heard(town)
    heard.node.subscribe(NAME, flags=NO_LOCAL)
    town.world.run_for(500 * MS)
    assert heard.hear(heard.frame(origin=heard.node.id)) == []
    assert len(heard.hear(heard.frame())) == 1


def test_message_of_a_node_that_is_not_the_manager_is_left_to_it(town: Town) -> None:
    heard = Heard(town)
    other = next(n for n in town.alive() if n not in (heard.node, heard.manager))
    frame = other.machine.seat.make_frame(SERVICE, heard.frame()[HEADER_BYTES:])
    assert heard.hear(frame, other.address) == []
    assert heard.machine.seat.counters["group_ignored"] == 1

"""Who is here: what a node concludes from what it is told of others."""

from random import Random

import pytest

from hubbub.limits import (
    DEAD_KEPT,
    FORMER_INTERVAL,
    FORMER_PLACES_MAX,
    INCARNATION_LEAD_US,
    SECOND,
)
from hubbub.protocol.rendezvous.placement import WeightedPlacement, XorPlacement
from hubbub.protocol.rendezvous.profile import FAST, SEED
from hubbub.protocol.rendezvous.seat import Place, Seat
from hubbub.protocol.rendezvous.swim import Swim, first_incarnation
from hubbub.protocol.rendezvous.view import State, View
from hubbub.wire.header import HEADER_BYTES
from hubbub.wire.services import JOIN, NEWS, Members, Record, decode_members, node_key

OTHER = b"other......."


def make_swim() -> Swim:
    seat = Seat(bytes(12), 1, 7, Random(1), 0)
    return Swim(seat, View(seat, XorPlacement(), 2 * SECOND, 1), FAST, [], 1)


def tell(swim: Swim, now: int, state: State, life: int = 1, incarnation: int = 1) -> None:
    swim.hear_of(now, Record(OTHER, "10.0.0.2", 1, incarnation, life, int(state)))


def live_until(swim: Swim, end: int) -> None:
    while swim.due_ns <= end:
        swim.seat.now = swim.due_ns
        swim.advance(swim.due_ns)


@pytest.mark.parametrize("is_known", [False, True])
def test_one_that_is_first_heard_of_as_a_suspect_is_not_one_for_ever(is_known: bool) -> None:
    swim = make_swim()
    if is_known:  # In another life.
        tell(swim, 0, State.ALIVE)
    tell(swim, 0, State.SUSPECT, life=2, incarnation=2)
    assert swim.view.members[OTHER].state is State.SUSPECT
    live_until(swim, FAST.suspicion_ns - 1)
    assert swim.view.is_present(OTHER)
    live_until(swim, FAST.suspicion_ns + SECOND)
    assert swim.view.members[OTHER].state is State.DEAD


def test_suspect_that_objects_is_left_in_peace() -> None:
    swim = make_swim()
    tell(swim, 0, State.SUSPECT)
    tell(swim, 0, State.ALIVE, incarnation=2)
    assert swim.view.members[OTHER].state is State.ALIVE
    live_until(swim, FAST.probe_ns // 2)
    assert not swim._suspects


def test_two_that_leave_at_once_do_not_tell_each_other_for_ever() -> None:
    leaver = make_swim()
    seat = leaver.seat
    tell(leaver, 0, State.ALIVE)
    seat.is_leaving = True
    seat.out.clear()
    own = Record(OTHER, "", 0, 2, 1, int(State.LEFT))
    leaver.take(1, OTHER, ("10.0.0.2", 1), Members(NEWS, 0, bytes(12), 0, [own]))
    assert leaver.view.members[OTHER].state is State.LEFT
    assert not seat.out


def test_who_is_taken_for_dead_wrongly_is_told() -> None:
    swim = make_swim()
    tell(swim, 0, State.ALIVE)
    tell(swim, 0, State.DEAD)
    swim.seat.out.clear()
    own = Record(OTHER, "", 0, 1, 1, int(State.ALIVE))
    swim.take(1, OTHER, ("10.0.0.2", 1), Members(NEWS, 0, bytes(12), 0, [own]))
    assert [place for place, _ in swim.seat.out] == [("10.0.0.2", 1)]


@pytest.mark.parametrize(("host", "port"), [("a\0b", 7), ("host.invalid", 7), ("10.0.0.3", 0)])
def test_member_at_what_is_no_place_is_not_believed_and_not_told_of(host: str, port: int) -> None:
    swim = make_swim()
    told = Record(b"nowhere.....", host, port, 1, 1, 0)
    swim.take(0, OTHER, ("10.0.0.2", 1), Members(NEWS, 0, bytes(12), 0, [own_of(OTHER), told]))
    swim.hear_of(0, told)
    assert list(swim.view.members) == [OTHER]
    assert swim.seat.drops["place"] == 2


def own_of(node: bytes, incarnation: int = 1) -> Record:
    return Record(node, "", 0, incarnation, 1, 0)


YEAR_NS = 366 * 86_400 * SECOND


def hear(swim: Swim, *told: Record, own: Record | None = None) -> None:
    members = Members(NEWS, 0, bytes(12), 0, [own or own_of(OTHER), *told])
    swim.take(swim.seat.now, OTHER, ("10.0.0.2", 1), members)


@pytest.mark.parametrize("incarnation", [1 << 62, INCARNATION_LEAD_US + 1])
def test_incarnation_that_no_clock_gives_is_not_believed(incarnation: int) -> None:
    swim = make_swim()
    third = Record(b"third.......", "10.0.0.3", 1, incarnation, 1, 0)
    hear(swim, third)
    swim.hear_of(0, third)
    hear(swim, own=own_of(OTHER, incarnation))
    assert list(swim.view.members) == [OTHER]
    assert swim.view.members[OTHER].incarnation == 1
    assert swim.seat.drops["incarnation"] == 3


def test_node_is_not_made_to_take_an_incarnation_that_nobody_believes() -> None:
    swim = make_swim()
    hear(swim, Record(bytes(12), "10.0.0.1", 1, 1 << 62, 1, int(State.SUSPECT)))
    assert swim.incarnation == 1
    hear(swim, Record(bytes(12), "10.0.0.1", 1, INCARNATION_LEAD_US, 1, int(State.SUSPECT)))
    assert swim.incarnation == INCARNATION_LEAD_US + 1  # Others may believe that, so it objects,
    assert swim.seat.stamp() > swim.incarnation  # and what it asks for is not of an earlier life.


@pytest.mark.parametrize("years", [-55, -1, 1, 55])
def test_clock_that_is_wrong_by_decades_is_believed(years: int) -> None:
    swim = make_swim()
    swim.seat.wall_offset_ns = 56 * YEAR_NS
    theirs = first_incarnation(0, (56 + years) * YEAR_NS)
    hear(swim, own=own_of(OTHER, theirs))
    assert swim.view.members[OTHER].incarnation == theirs
    assert not swim.seat.drops


def joins_to(swim: Swim, places: set[Place]) -> int:
    """Return how often somebody at one of these places was asked for its view."""
    bodies = [data[HEADER_BYTES:] for place, data in swim.seat.out if place in places]
    swim.seat.out.clear()
    return sum(
        members is not None and members.form == JOIN for members in map(decode_members, bodies)
    )


def test_place_of_one_that_died_long_ago_is_still_asked_now_and_then() -> None:
    swim = make_swim()
    tell(swim, 0, State.SUSPECT)
    live_until(swim, DEAD_KEPT + 10 * SECOND)
    assert OTHER not in swim.view.members
    swim.seat.out.clear()
    live_until(swim, DEAD_KEPT + 10 * SECOND + 4 * FORMER_INTERVAL)
    assert joins_to(swim, {("10.0.0.2", 1)}) == 4
    tell(swim, swim.seat.now, State.ALIVE, incarnation=9)  # It is found again.
    swim._former_ns = swim.seat.now
    swim.advance(swim.seat.now)
    assert not swim._former


def test_places_that_are_asked_still_are_bounded_and_have_their_turns() -> None:
    swim = make_swim()
    for number in range(FORMER_PLACES_MAX + 5):
        node = number.to_bytes(12, "big")[::-1]
        swim.hear_of(0, Record(node, f"10.0.1.{number}", 1, 1, 1, int(State.SUSPECT)))
    live_until(swim, DEAD_KEPT + 10 * SECOND)
    assert len(swim._former) == FORMER_PLACES_MAX
    places = set(swim._former)
    swim.seat.out.clear()
    live_until(swim, swim.seat.now + (FORMER_PLACES_MAX + 1) * FORMER_INTERVAL)
    asked = {place for place, _ in swim.seat.out}
    assert asked == places


def test_one_that_left_is_not_looked_for() -> None:
    swim = make_swim()
    tell(swim, 0, State.ALIVE)
    tell(swim, 0, State.LEFT)
    live_until(swim, DEAD_KEPT + 10 * SECOND)
    assert OTHER not in swim.view.members and not swim._former


def make_seed_swim() -> Swim:
    seat = Seat(bytes(12), 1, 7, Random(1), 0)
    return Swim(seat, View(seat, XorPlacement(), 2 * SECOND, 1), SEED, [], 1)


@pytest.mark.parametrize("suspected_s", [0, 3, 16, 45])
def test_by_the_times_of_the_first_version_death_is_60_s_after_the_last_sign_of_life(
    suspected_s: int,
) -> None:
    swim = make_seed_swim()
    hear(swim)
    live_until(swim, suspected_s * SECOND)
    swim.suspect(swim.seat.now, OTHER)  # As when a message is not acknowledged.
    live_until(swim, 60 * SECOND - 1)
    assert swim.view.is_present(OTHER)
    live_until(swim, 60 * SECOND)
    assert not swim.view.is_present(OTHER)


def test_suspect_that_is_heard_lives_on_by_the_times_of_the_first_version() -> None:
    swim = make_seed_swim()
    hear(swim)
    swim.suspect(0, OTHER)
    live_until(swim, 40 * SECOND)
    swim.meet(40 * SECOND, OTHER, 1, ("10.0.0.2", 1))
    live_until(swim, 100 * SECOND - 1)
    assert swim.view.is_present(OTHER)
    live_until(swim, 100 * SECOND)
    assert not swim.view.is_present(OTHER)


def test_suspect_and_who_is_cleared_keep_their_weight() -> None:
    swim = make_swim()
    swim.hear_of(0, Record(OTHER, "10.0.0.2", 1, 1, 1, int(State.ALIVE), 100))
    swim.suspect(0, OTHER)
    member = swim.view.members[OTHER]
    assert (member.state, member.weight) == (State.SUSPECT, 100)


def test_closest_node_is_looked_for_anew_when_a_weight_is_told() -> None:
    seat = Seat(bytes(12), 1, 7, Random(1), 0)
    swim = Swim(seat, View(seat, WeightedPlacement(), 2 * SECOND, 1), FAST, [], 1)
    swim.meet(0, OTHER, 1, ("10.0.0.2", 1))
    keys = [node_key(bytes([number]) * 12) for number in range(100)]
    before = [swim.view.closest(key) for key in keys]
    swim.hear_of(0, Record(OTHER, "10.0.0.2", 1, 1, 1, int(State.ALIVE), 100))
    after = [swim.view.closest(key) for key in keys]
    assert after.count(OTHER) > before.count(OTHER)

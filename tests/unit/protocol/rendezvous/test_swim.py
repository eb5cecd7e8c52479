"""Who is here: what a node concludes from what it is told of others."""

from random import Random

import pytest

from hubbub.limits import SECOND
from hubbub.protocol.rendezvous.placement import WeightedPlacement, XorPlacement
from hubbub.protocol.rendezvous.profile import FAST
from hubbub.protocol.rendezvous.seat import Seat
from hubbub.protocol.rendezvous.swim import Swim
from hubbub.protocol.rendezvous.view import State, View
from hubbub.wire.services import NEWS, Members, Record, node_key

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

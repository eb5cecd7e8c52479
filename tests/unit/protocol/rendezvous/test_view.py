"""Who is closest, and what a view is worth: kept up step by step, the same as looked up anew."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.limits import SECOND
from hubbub.protocol.rendezvous.placement import PLACEMENTS
from hubbub.protocol.rendezvous.ring import Ring
from hubbub.protocol.rendezvous.seat import Seat
from hubbub.protocol.rendezvous.view import State, View, fold
from hubbub.wire.services import Record, node_key

STABLE_NS = 2 * SECOND


@given(st.sets(st.integers(0, 2**160 - 1)), st.integers(0, 2**160 - 1), st.integers(1, 20))
def test_ring_finds_the_keys_that_are_closest_by_xor(keys: set[int], key: int, count: int) -> None:
    ring = Ring()
    for one in keys:
        ring.add(one)
    assert ring.nearest(key, count) == sorted(keys, key=lambda one: one ^ key)[:count]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=200), st.integers(0, 63))
def test_ring_of_keys_that_come_and_go_is_the_set_of_them(
    changes: list[tuple[bool, int]], key: int
) -> None:
    ring, expected = Ring(), set[int]()
    for is_in, one in changes:
        (ring.add if is_in else ring.discard)(one)
        (expected.add if is_in else expected.discard)(one)
    assert len(ring) == len(expected)
    assert ring.nearest(key, 99) == sorted(expected, key=lambda one: one ^ key)


class Model:
    """A view, and everything that is asked of it computed from its members alone."""

    def __init__(self, placement: str, seed: int) -> None:
        self.random = Random(seed)
        self.ids = [self.random.randbytes(12) for _ in range(60)]
        self.seat = Seat(self.random.randbytes(12), 1, 7, self.random, 0)
        self.view = View(self.seat, PLACEMENTS[placement], STABLE_NS)
        self.now = 0

    def step(self) -> None:
        view, random = self.view, self.random
        node = random.choice(self.ids)
        self.now += random.randrange(SECOND // 4)
        self.seat.now = self.now
        record = Record(
            node,
            "10.0.0.1",
            7,
            random.randrange(20),
            random.randrange(3),
            random.choice(list(State)),
        )
        view.apply(self.now, record, ("10.0.0.1", 7))
        if random.random() < 0.5:
            view.settle(self.now)
        if random.random() < 0.1:
            view.forget(random.choice(self.ids))

    def digest(self) -> int:
        total = 0
        for one in self.view.present():
            total ^= fold(one.node, one.incarnation)
        return total

    def rank(self, key: bytes, *, is_settled: bool) -> list[bytes]:
        nodes = [one.node for one in self.view.present() if one.is_settled or not is_settled]
        nodes += [self.seat.node] if self.seat.may_manage else []
        return sorted(nodes, key=lambda node: (self.view.measure(key, node), node))


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("seed", range(5))
def test_view_that_is_kept_up_is_what_its_members_say(placement: str, seed: int) -> None:
    model = Model(placement, seed)
    for number in range(300):
        model.step()
        model.seat.is_guest = number > 200
        key = node_key(model.random.randbytes(4))
        assert model.view.digest == model.digest()
        for is_settled in (True, False):
            expected = model.rank(key, is_settled=is_settled)
            count = model.random.randint(1, 5)
            assert model.view.rank(key, count, is_settled=is_settled) == expected[:count]

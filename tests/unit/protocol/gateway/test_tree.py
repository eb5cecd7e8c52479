"""Which ports of gateways pass on: between any two networks one way, whatever the drawing."""

from collections import Counter
from random import Random

import pytest

from hubbub.limits import BEACON_TIMEOUT, HOP_LIMIT, MS, TREE_ALONE, TREE_HOLD, TREE_JOIN
from hubbub.protocol.gateway.tree import Tree
from hubbub.wire.gateways import Beacon, decode_beacon, encode_beacon


class Drawing:
    """Gateways by the LANs that they join; beacons go round until nothing changes."""

    def __init__(self, *gateways: tuple[int, ...]) -> None:
        self.now = 0
        self.places = list(gateways)
        self.trees = [
            Tree(number.to_bytes(12, "big"), len(lans), 0)
            for number, lans in enumerate(gateways, 1)
        ]
        self.dead: set[int] = set()
        self.changes: Counter[tuple[int, int]] = Counter()  # Of a port that opens or closes.
        self.run(TREE_ALONE)
        self.run(MS)

    def run(self, time_ns: int) -> None:
        """Let time pass, then let all agree."""
        self.now += time_ns
        for _ in range(2 * HOP_LIMIT + 2):
            for one in self._alive():
                self._tell(one)
            before = self.open_ports()
            for one in self._alive():
                self.trees[one].settle(self.now, lambda _, key: key[0] not in self.dead)
            self.changes.update(before ^ self.open_ports())

    def kill(self, one: int) -> None:
        """Let a gateway die, and the others agree again; those that must wait do so."""
        self.dead.add(one)
        self.changes.clear()
        self.run(MS)
        self.run(TREE_HOLD)

    @property
    def held(self) -> set[int]:
        """Return the gateways that wait for a way."""
        return {one for one in self._alive() if self.trees[one].is_held}

    def _alive(self) -> list[int]:
        return [one for one in range(len(self.trees)) if one not in self.dead]

    def _tell(self, one: int) -> None:
        for port, lan in enumerate(self.places[one]):
            beacon = self.trees[one].beacon(port)
            for other in self._alive():
                for place, there in enumerate(self.places[other]):
                    if there == lan and (other, place) != (one, port):
                        self.trees[other].hear(self.now, place, bytes([one, port]), beacon)

    def open_ports(self) -> set[tuple[int, int]]:
        """Return (gateway, LAN) of all ports that pass on."""
        return {
            (one, lan)
            for one in self._alive()
            for lan, is_open in zip(self.places[one], self.trees[one].is_open, strict=True)
            if is_open
        }

    def check_tree(self) -> None:
        """Check that LANs that could be joined are, and in one way only."""
        could = {(one, lan) for one in self._alive() for lan in self.places[one]}
        groups = {}
        for edges in (could, self.open_ports()):
            leader: dict[object, object] = {}

            def find(node: object, leader: dict[object, object] = leader) -> object:
                while leader.setdefault(node, node) != node:
                    node = leader[node]
                return node

            circles = 0
            for one, lan in sorted(edges):
                ends = find(("gateway", one)), find(("lan", lan))
                circles += ends[0] == ends[1]
                leader[ends[0]] = ends[1]
            lans = {lan for _, lan in could}
            groups[edges is could] = {
                frozenset(b for b in lans if find(("lan", a)) == find(("lan", b))) for a in lans
            }
        assert circles == 0, self.places
        assert groups[True] == groups[False], self.places


def test_one_gateway_opens_all_ports_after_it_has_looked_around() -> None:
    tree = Tree(b"a" * 12, 3, 0)
    assert not tree.settle(0, lambda *_: True)
    assert tree.is_open == [False, False, False]
    assert tree.settle(TREE_ALONE, lambda *_: True)
    assert tree.is_open == [True, True, True]


def test_newcomer_listens_before_it_takes_over() -> None:
    drawing = Drawing((0, 1))
    old, new = drawing.trees[0], Tree(bytes(12), 2, drawing.now)
    begin_ns = drawing.now

    def exchange(now: int) -> bool:
        for port in range(2):
            old.hear(now, port, b"new", new.beacon(port))
            new.hear(now, port, b"old", old.beacon(port))
        is_told = old.settle(now, lambda *_: True)
        new.settle(now, lambda *_: True)
        return is_told

    assert exchange(begin_ns), "who listens is answered"
    assert exchange(begin_ns + TREE_JOIN - 1)
    assert all(old.is_open) and new.is_listening and new.is_standby
    exchange(begin_ns + TREE_JOIN)
    exchange(begin_ns + TREE_JOIN)
    assert all(new.is_open) and old.is_standby
    assert not exchange(begin_ns + TREE_JOIN)


def test_newcomer_that_extends_a_chain_waits_a_little_for_others_to_be_heard() -> None:
    active, tree = Beacon(b"a" * 12, 0, b"a" * 12, 0, True, False), Tree(b"b" * 12, 2, 0)
    tree.hear(0, 0, b"other", active)
    tree.settle(2 * TREE_ALONE - 1, lambda *_: True)
    assert tree.is_listening and tree.is_open == [False, False]
    tree.settle(2 * TREE_ALONE, lambda *_: True)
    assert tree.is_open == [True, True]


def test_ring_of_three_is_cut_once() -> None:
    drawing = Drawing((0, 1), (1, 2), (2, 0))
    assert len(drawing.open_ports()) == 5
    drawing.check_tree()


def test_of_two_side_by_side_one_stands_by_and_takes_over() -> None:
    drawing = Drawing((0, 1), (0, 1))
    first, second = drawing.trees
    assert all(first.is_open) and not first.is_standby
    assert second.is_standby and second.beacon(0).is_standby
    drawing.dead.add(0)
    drawing.run(MS)
    assert all(second.is_open) and not second.is_standby


def test_wishes_of_who_stands_by_do_not_count() -> None:
    drawing = Drawing((0, 1), (0, 1))
    first, second = drawing.trees
    assert first.ignored(0) == {bytes([1, 0])} and first.ignored(1) == {bytes([1, 1])}
    assert second.ignored(0) == {bytes([0, 0])}


def test_wishes_of_who_died_while_it_stood_by_do_not_count_either() -> None:
    """What it wanted is remembered for longer than its beacons, and nobody is there to want it."""
    drawing = Drawing((0, 1), (0, 1))
    first = drawing.trees[0]
    standby = bytes([1, 0])
    first.settle(drawing.now + BEACON_TIMEOUT + 1, lambda *_: True)
    assert not first.heard[0] and first.ignored(0) == first.standing_by(0) == {standby}
    first.forget(0, {standby})
    assert first.ignored(0) == {standby}
    first.forget(0, ())
    assert first.ignored(0) == set()


def test_who_stood_by_and_passes_on_after_a_silence_counts() -> None:
    drawing = Drawing((0, 1), (0, 1))
    first, second = drawing.trees
    first.settle(drawing.now + BEACON_TIMEOUT + 1, lambda *_: True)
    second.is_open = [True, True]
    first.hear(drawing.now, 0, bytes([1, 0]), second.beacon(0))
    assert first.ignored(0) == set()


def test_what_is_not_repeated_is_forgotten() -> None:
    drawing = Drawing((0, 1), (0, 1))
    second = drawing.trees[1]
    assert not second.settle(drawing.now + BEACON_TIMEOUT, lambda *_: True)
    assert second.settle(drawing.now + BEACON_TIMEOUT + 1, lambda *_: True)
    assert all(second.is_open) and second.root == second.gateway


def test_root_that_is_gone_is_not_believed_for_ever() -> None:
    drawing = Drawing((0, 1), (1, 2), (2, 3), (3, 1))
    assert {tree.root for tree in drawing.trees} == {drawing.trees[0].gateway}
    drawing.kill(0)
    alive = drawing.trees[1:]
    assert {tree.root for tree in alive} == {drawing.trees[1].gateway}
    drawing.check_tree()


def test_nobody_counts_up_the_way_to_a_root_that_is_gone() -> None:
    """Ports opened and closed at each step, and wishes were withdrawn and had back (maze 21009)."""
    drawing = Drawing((0, 1), (1, 2), (2, 3), (1, 4), (3, 4), (2, 3), (0, 3))
    drawing.dead.add(0)
    drawing.changes.clear()
    drawing.run(MS)
    assert drawing.held == {1, 2, 3, 4, 5, 6}
    assert {tree.beacon(0).distance for tree in drawing.trees[1:]} == {HOP_LIMIT}
    assert not drawing.changes, "while they wait they go on as before"
    drawing.run(TREE_HOLD)
    assert not drawing.held and {tree.root for tree in drawing.trees[1:]} == {
        drawing.trees[1].gateway
    }
    drawing.check_tree()


def test_longer_way_to_the_root_is_taken_when_it_is_still_told_after_a_while() -> None:
    drawing = Drawing((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0))
    third, root = drawing.trees[2], drawing.trees[0].gateway
    assert (third.root, third.distance) == (root, 2)
    drawing.dead.add(1)
    drawing.run(MS)
    assert drawing.held == {2}
    drawing.run(TREE_HOLD)
    assert (third.root, third.distance) == (root, 4) and not drawing.held
    drawing.check_tree()


def test_who_waits_for_a_way_does_not_answer_others_who_do() -> None:
    drawing = Drawing((0, 1), (1, 2), (2, 0))
    drawing.dead.add(0)
    drawing.run(MS)
    second, third = drawing.trees[1:]
    assert drawing.held == {1, 2}
    second.hear(drawing.now, 1, bytes([2, 0]), third.beacon(0))
    assert not second.settle(drawing.now, lambda _, key: key[0] not in drawing.dead)


def test_who_waits_goes_back_at_once_to_a_way_that_is_as_short() -> None:
    drawing = Drawing((0, 1), (1, 2), (2, 0))
    second, way = drawing.trees[1], drawing.trees[0].beacon(1)
    assert second.settle(drawing.now, lambda _, key: key[0] != 0) and second.is_held
    second.hear(drawing.now, 0, bytes([0, 1]), way)
    assert second.settle(drawing.now, lambda *_: True)
    assert not second.is_held and second.distance == 1


def test_both_ports_on_one_network_are_seen() -> None:
    drawing = Drawing((0, 0))
    assert drawing.trees[0].is_open == [True, False]


@pytest.mark.parametrize("seed", range(30))
def test_any_drawing_becomes_a_tree_also_after_deaths(seed: int) -> None:
    random = Random(seed)
    count = random.randint(2, 7)
    drawn = [
        tuple(random.sample(range(count), random.randint(2, min(3, count))))
        for _ in range(random.randint(1, 9))
    ]
    drawing = Drawing(*drawn)
    drawing.check_tree()
    for one in random.sample(range(len(drawn)), len(drawn) // 2):
        drawing.kill(one)
        drawing.check_tree()


@pytest.mark.parametrize("data", [b"", b"\x90", b"\xc0", encode_beacon(
    Beacon(bytes(12), 1, bytes(12), 0, True, True))[:-1]])  # fmt: skip
def test_beacon_that_is_none_is_refused(data: bytes) -> None:
    assert decode_beacon(data) is None

"""What gateways keep in reserve for one that stands by, and what tells that from real wishes."""

from hubbub.limits import MS, PORT_KEPT, SUBJECT_BYTES_MAX, WISH_LINGER
from hubbub.protocol.gateway.port import Port
from hubbub.protocol.gateway.tree import Tree
from hubbub.protocol.gateway.wishes import mark
from hubbub.wire.gateways import Beacon
from tests.harness import Node
from tests.unit.protocol.gateway.test_port import Beyond

WANTED = frozenset({"/t/..."})
NOTHING = frozenset[str]()


class Standby(Beyond):
    """A LAN on which the only node that wants something is a gateway that stands by."""

    def __init__(self, pattern: str = "/t/...") -> None:
        super().__init__(pattern)
        self.port = Port("beyond", self.gateway.core)
        self.ignore()

    def ignore(self) -> None:
        self.port.look(self.lan.now, {self.node.key}, {self.node.key})


def test_what_one_that_stands_by_wants_is_kept_and_goes_out_when_it_takes_over() -> None:
    beyond = Standby()
    assert beyond.port.patterns == NOTHING and beyond.port.reserve == WANTED
    topic = beyond.topic()
    beyond.bring(topic, 1, b"a", b"b")
    beyond.bring(topic, 3, b"c")
    assert beyond.got == [] and not beyond.port.is_waiting
    assert beyond.port.look(beyond.lan.now)
    beyond.bring(topic, 4, b"d")
    assert [payload for _, _, payload, _ in beyond.got] == [b"a", b"b", b"c", b"d"]


def test_somebody_else_who_comes_gets_nothing_of_what_is_in_reserve() -> None:
    beyond = Standby()
    topic = beyond.topic()
    beyond.bring(topic, 1, b"a")
    (other,) = beyond.lan.open(1, "/t/...")
    beyond.ignore()
    beyond.bring(topic, 2, b"b")
    assert other.payloads("/t/x") == [b"b"]


def test_what_is_in_reserve_for_too_long_is_forgotten() -> None:
    beyond = Standby()
    beyond.bring(beyond.topic(), 1, b"a")
    beyond.lan.run(PORT_KEPT)
    beyond.port.look(beyond.lan.now)
    assert not beyond.port.is_waiting


def test_what_is_asked_for_in_reserve_is_marked_until_it_is_wanted() -> None:
    beyond = Beyond("/u/...")
    asking, hearing = beyond.port, Port("other", beyond.node.core)
    for marked, real in ((WANTED, NOTHING), (NOTHING, WANTED), (WANTED, NOTHING)):
        asking.ask(beyond.lan.now, WANTED, marked)
        beyond.lan.run(50 * MS)
        hearing.look(beyond.lan.now)
        assert (hearing.patterns, hearing.reserve) == (real, marked)
    asking.ask(beyond.lan.now, NOTHING, NOTHING)
    beyond.lan.run(50 * MS)
    hearing.look(beyond.lan.now)
    assert (hearing.patterns, hearing.reserve) == (NOTHING, NOTHING)
    assert not beyond.node.core.peers[beyond.gateway.key].declared.sound_patterns()


def test_mark_is_there_before_what_it_marks_and_until_that_is_gone() -> None:
    beyond = Beyond("/u/...")
    hearing = Port("other", beyond.node.core)
    told: list[frozenset[str]] = []
    beyond.node.core.outgoing.grants.on_interest = lambda: (
        hearing.look(beyond.lan.now),
        told.append(hearing.patterns),
    )[0]
    for asked in (WANTED, NOTHING):
        beyond.port.ask(beyond.lan.now, asked, asked)
        beyond.lan.run(50 * MS)
    assert told and not any(told)


def test_who_stands_by_hands_on_nothing_that_is_wanted_in_reserve() -> None:
    """It could come back to it, and two wishes in a circle would keep each other alive."""
    beyond = Beyond("/u/...")
    beyond.port.ask(beyond.lan.now, WANTED, WANTED)
    beyond.lan.run(50 * MS)
    standby = Port("other", beyond.node.core)
    standby.is_open, standby.is_standby = False, True
    standby.look(beyond.lan.now)
    assert (standby.patterns, standby.reserve) == (NOTHING, NOTHING)


def test_pattern_that_is_too_long_to_be_marked_is_not_kept_in_reserve() -> None:
    pattern = "/" + "x" * (SUBJECT_BYTES_MAX - 1)
    assert len(mark(pattern)) > SUBJECT_BYTES_MAX
    assert Standby(pattern).port.reserve == NOTHING


def test_gateways_that_stand_by_are_kept_for_but_not_by_one_of_them() -> None:
    trees = [Tree(bytes([number] * 12), 2, 0) for number in (1, 2)]
    for tree in trees:
        other = bytes([9] * 12)
        tree.hear(0, 0, b"standby", Beacon(other, 1, other, 0, False, True))
        tree.hear(0, 0, b"ourselves", Beacon(other, 1, tree.gateway, 1, False, True))
    trees[0].is_open = [True, True]
    assert trees[0].standing_by(0) == {b"standby"} and trees[0].standing_by(1) == set()
    assert trees[1].standing_by(0) == set()


def restart(beyond: Beyond) -> Node:
    """Kill the node that wants something, and let it come again without a wish."""
    beyond.lan.nodes.remove(beyond.node)
    again = beyond.lan.add(2, incarnation=9999)
    beyond.lan.run(50 * MS)
    assert beyond.node.key not in beyond.gateway.core.peers
    return again


def test_wishes_of_a_gateway_that_was_restarted_count_until_it_has_told_its_own() -> None:
    """They were withdrawn for a moment, and gateways forgot how far they were (maze 21009)."""
    beyond = Standby()
    again = restart(beyond)
    beyond.ignore()
    assert beyond.port.reserve == WANTED
    again.core.subscribe(beyond.lan.now, "/t/...")
    beyond.lan.run(WISH_LINGER)
    beyond.port.look(beyond.lan.now, {again.key}, {again.key})
    assert (beyond.port.patterns, beyond.port.reserve) == (NOTHING, WANTED)


def test_what_a_restarted_node_does_not_want_again_is_withdrawn_after_a_while() -> None:
    beyond = Beyond()
    restart(beyond)
    now = beyond.lan.now
    assert not beyond.port.look(now)
    assert not beyond.port.look(now + WISH_LINGER - 1)
    assert beyond.port.patterns == WANTED
    assert beyond.port.look(now + WISH_LINGER)
    assert beyond.port.patterns == NOTHING


def test_what_a_restarted_node_withdraws_again_does_not_linger() -> None:
    beyond = Beyond()
    again = restart(beyond)
    again.core.subscribe(beyond.lan.now, "/u/...")
    beyond.port.look(beyond.lan.now)
    beyond.lan.run(WISH_LINGER)
    beyond.port.look(beyond.lan.now)
    assert beyond.port.patterns == {"/u/..."}
    again.core.unsubscribe(beyond.lan.now, "/u/...")
    beyond.lan.run(50 * MS)
    beyond.port.look(beyond.lan.now)
    assert beyond.port.patterns == NOTHING


def test_wishes_of_a_node_that_leaves_do_not_linger() -> None:
    beyond = Beyond()
    beyond.node.core.close(beyond.lan.now, 0)
    beyond.lan.run(50 * MS)
    assert beyond.port.look(beyond.lan.now)
    assert beyond.port.patterns == NOTHING

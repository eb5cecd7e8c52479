"""Finding each other at once, telling changes, answering within limits, forgetting in time."""

from random import Random

from hubbub.events import PeerJoined, PeerLeft
from hubbub.limits import (
    DEPARTED_MAX,
    FRAME_BYTES_MIN,
    MS,
    OPENING,
    OPENING_HELLO_INTERVAL,
    OPENING_LATE,
    OPENING_MAX,
    OPENING_WHEN_CLOSING,
    PEERS_MAX,
    SECOND,
    STRANGERS_MAX,
    SUBJECT_BYTES_MAX,
)
from hubbub.protocol.declared import Declared
from hubbub.protocol.discovery import Discovery
from hubbub.protocol.state import State
from hubbub.wire import control
from hubbub.wire.control import Hello
from hubbub.wire.header import CHANGE, HEADER_BYTES, HELLO, TAG_BYTES, WANT
from tests.harness import Lan, lose_first, lose_share

BASE = Hello("me", "host", 1, "default", 1, 0, 1, [], 1 << 20, [], False)


def make(patterns: int = 0, body_bytes_max: int = 1314) -> tuple[Discovery, list[bytes]]:
    state = State()
    for number in range(patterns):
        state.want(f"/some/pattern/{number}")
    sent: list[bytes] = []
    discovery = Discovery(
        0, Random(1), state, lambda: BASE, lambda _address, body: sent.append(body),
        lambda _body: None, body_bytes_max,
    )  # fmt: skip
    return discovery, sent


def test_two_nodes_that_start_together_know_each_other_within_50_ms() -> None:
    lan = Lan(2)
    assert lan.run_until(lambda: all(node.events_of(PeerJoined) for node in lan.nodes), 50 * MS)


def test_newcomer_knows_everybody_before_its_opening_ends_despite_loss() -> None:
    for seed in range(20):
        lan = Lan(5, seed=seed)
        lan.run(200 * MS)
        lan.lose = lose_share(Random(seed), 0.2)
        newcomer = lan.add()
        newcomer.core.subscribe(lan.now, "/...")
        lan.run(OPENING)
        assert len(newcomer.events_of(PeerJoined)) == 5


def test_opening_lasts_from_the_first_hello_however_late_that_is() -> None:
    """A node that was kept from running said goodbye before anybody had heard of it."""
    lan = Lan(1)
    late = lan.add().core
    first = lan.now + 60 * MS
    late.advance(first)
    assert late.outgoing.reliable.is_held and late.discovery.opens_ns == first + OPENING
    for now in range(first, first + OPENING, OPENING_HELLO_INTERVAL):
        late.advance(now)
        assert late.outgoing.reliable.is_held
    late.advance(first + OPENING)
    assert not late.outgoing.reliable.is_held


def test_opening_waits_for_those_of_whom_others_told_but_not_for_ever() -> None:
    lan = Lan(1)
    lan.run(200 * MS)
    [known] = lan.nodes
    patient, vain = lan.add().core, lan.add().core
    patient.expect([known.core.endpoint.key])
    vain.expect([bytes(20)])
    lan.run(OPENING + OPENING_HELLO_INTERVAL)
    assert not patient.outgoing.reliable.is_held, "it is known as soon as it would be anyway"
    assert vain.outgoing.reliable.is_held
    lan.run(OPENING_WHEN_CLOSING - OPENING)
    assert not vain.outgoing.reliable.is_held


def test_node_that_stood_still_while_it_opened_looks_around_again() -> None:
    """What was answered meanwhile was still to be read, and its message went to nobody."""
    lan = Lan(1)
    core = lan.add().core
    core.advance(lan.now)
    now = lan.now + OPENING + OPENING_LATE
    core.advance(now)
    assert core.outgoing.reliable.is_held and core.discovery.opens_ns == now + OPENING


def test_node_that_closes_before_its_first_hello_looks_around_for_longer_all_the_same() -> None:
    """The first HELLO set the usual time again, so a subscriber had 45 ms to answer, not 200."""
    lan = Lan(1)
    node = lan.add()
    topic = node.core.publish_on(lan.now, "/a")
    node.core.outgoing.reliable.framer.add(topic, b"last words", 0)
    node.core.close(lan.now, 1 * SECOND)
    first = lan.now + 5 * MS
    node.core.advance(first)
    assert node.core.discovery.opens_ns == first + OPENING_WHEN_CLOSING


def test_node_that_always_stands_still_opens_all_the_same() -> None:
    lan = Lan(1)
    core = lan.add().core
    for now in range(lan.now, lan.now + OPENING_MAX + OPENING, 30 * MS):
        assert core.outgoing.reliable.is_held
        core.advance(now)
    core.advance(lan.now + OPENING_MAX + 2 * OPENING)
    assert not core.outgoing.reliable.is_held


def test_peer_that_is_known_stays_silent_at_the_repeated_hello() -> None:
    lan = Lan(2)
    lan.run(1 * SECOND)
    lan.sent.clear()
    lan.add()
    lan.run(100 * MS)
    replies = [each for each in lan.sent_of(HELLO) if each.destination is not None]
    assert len(replies) <= 4


def test_change_of_interest_is_announced_at_once_and_repeated() -> None:
    lan = Lan(2)
    lan.run(1 * SECOND)
    first, second = lan.nodes
    lan.lose = lose_first(2, kind=CHANGE)
    first.core.subscribe(lan.now, "/a")
    lan.run(25 * MS)
    (peer,) = second.core.peers.values()
    assert peer.interest.match("/a")


def test_announcement_that_was_lost_is_asked_for_after_the_next_heartbeat() -> None:
    lan = Lan(2, heartbeat_ms=100, peer_timeout_ms=1000)
    lan.run(1 * SECOND)
    first, second = lan.nodes
    lan.lose = lose_first(3, kind=CHANGE)
    first.core.subscribe(lan.now, "/a")
    lan.run(200 * MS)
    (peer,) = second.core.peers.values()
    assert peer.interest.match("/a")
    assert lan.sent_of(WANT, second)


def test_long_state_comes_in_parts_that_fit_and_is_complete_in_any_order() -> None:
    discovery, sent = make(patterns=300)
    discovery.advance(0)
    parts = [control.decode(Hello, body) for body in sent]
    assert len(parts) > 3 and max(map(len, sent)) <= 1314
    declared = Declared()
    Random(3).shuffle(parts)
    results = [declared.collect(part) for part in parts if part is not None]
    assert results[:-1] == [None] * (len(parts) - 1)
    assert results[-1] is not None
    assert sorted(results[-1][0]) == sorted(discovery.state.interest.patterns)


def test_hello_with_many_known_peers_and_the_longest_pattern_fits_the_smallest_frame() -> None:
    body_bytes_max = FRAME_BYTES_MIN - HEADER_BYTES - TAG_BYTES
    discovery, sent = make(body_bytes_max=body_bytes_max)
    for number in range(100):
        peer = discovery.find(number.to_bytes(20, "big"), ("h", 1), 0)
        assert peer is not None
        peer.is_known = True
    for letter in "abc":
        discovery.state.want("/" + letter * (SUBJECT_BYTES_MAX - 1))
    discovery.advance(0)
    assert max(map(len, sent)) <= body_bytes_max
    hellos = [control.decode(Hello, body) for body in sent]
    assert [len(hello.known) for hello in hellos if hello is not None] == [64, 0, 0, 0]


def test_answers_to_a_flood_are_limited() -> None:
    discovery, sent = make()
    for number in range(10_000):
        discovery.reply(number, ("h", number))
    assert len(sent) <= 65 and discovery.refused >= 9_900


def test_tables_of_peers_are_bounded_and_the_departed_do_not_come_back() -> None:
    discovery, _ = make()
    for number in range(PEERS_MAX + 50):
        peer = discovery.find(number.to_bytes(20, "big"), ("h", 1), 0)
        if peer is not None:
            peer.is_known = True
    assert len(discovery.peers) == PEERS_MAX and discovery.refused == 50
    for peer in list(discovery.peers.values()):
        discovery.depart(peer)
    assert len(discovery.departed) == DEPARTED_MAX
    assert discovery.find((PEERS_MAX - 1).to_bytes(20, "big"), ("h", 1), 0) is None


def test_flood_of_strangers_pushes_out_strangers_but_nobody_who_is_known() -> None:
    discovery, _ = make()
    friend = discovery.find(b"friend".ljust(20), ("h", 1), 0)
    assert friend is not None
    friend.is_known = True
    for number in range(3 * STRANGERS_MAX):
        assert discovery.find(number.to_bytes(20, "big"), ("h", 1), 0) is not None
    assert len(discovery.peers) <= STRANGERS_MAX + 1
    assert friend.key in discovery.peers
    newest = (3 * STRANGERS_MAX - 1).to_bytes(20, "big")
    assert newest in discovery.peers


def test_stranger_that_never_introduces_itself_is_forgotten() -> None:
    lan = Lan(2, heartbeat_ms=100, peer_timeout_ms=300)
    first, second = lan.nodes
    lan.lose = lambda datagram, _: datagram.kind == HELLO
    lan.run(200 * MS)
    assert not any(peer.is_known for peer in first.core.peers.values())
    second.is_running = False
    lan.run(1 * SECOND)
    assert not first.core.peers and first.events_of(PeerLeft) == []


def test_late_frame_of_one_who_left_does_not_bring_it_back() -> None:
    lan = Lan(2)
    lan.run(100 * MS)
    first, second = lan.nodes
    old = lan.sent_of(HELLO, second)[-1]
    second.core.close(lan.now, 100 * MS)
    lan.run(300 * MS)
    assert not first.core.peers
    before = first.drops["departed"]
    first.core.receive(lan.now, old.data, 0, second.address)
    assert not first.core.peers and first.drops["departed"] == before + 1


def test_hello_shows_no_more_than_its_frame_holds() -> None:
    lan = Lan(0)
    for _ in range(12):
        lan.add(name="n" * 60).core.subscribe(lan.now, "/" + "p" * 700)
    lan.run(200 * MS)
    hellos = lan.sent_of(HELLO)
    assert max(len(each.data) for each in hellos) <= 1400
    assert all(control.decode(Hello, each.data[HEADER_BYTES:]) is not None for each in hellos)

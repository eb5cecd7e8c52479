"""What a topic keeps for those who come later, how they ask for it, and in which order they get it.

The simulator's scenario `history` has loss, joins in mid-stream and restarts; here are the corners.
"""

from random import Random
from typing import Any

import pytest

from hubbub.events import GapAbandoned
from hubbub.limits import HISTORY_BYTES_MAX, HISTORY_MESSAGES_MAX, MS, REPLAYS_PER_PEER_MAX, SECOND
from hubbub.message import Source
from hubbub.protocol.declared import Declared
from hubbub.protocol.delivery import MULTICAST, TCP, Delivery
from hubbub.protocol.history import History
from hubbub.protocol.joining import Joining
from hubbub.protocol.joins import answer
from hubbub.protocol.peers import Peer
from hubbub.protocol.reassembly import Budget, Share
from hubbub.protocol.receiver import Receiver
from hubbub.protocol.requests import read_request, write_request
from hubbub.protocol.state import Interest
from hubbub.protocol.topics import IncomingTopic, OutgoingTopic, ReplayedTopic, Way
from hubbub.wire.control import WANTS, Change, Replayed, Step, Topic
from hubbub.wire.header import CHANGE, DATA, GRANT, HEARTBEAT, HELLO, RELIABLE
from hubbub.wire.wishes import LINKS_OF, Links, name_by
from tests.harness import Lan, Node, carry, lose_first

SOURCE = Source("n", bytes(12), 1)


def test_newest_messages_are_kept_up_to_the_count() -> None:
    history = History(3)
    history.add([b"1", b"2"], [1, 2])
    history.add([b"3", b"4"], [3, 4])
    assert history.newest(0) == [(b"2", 2), (b"3", 3), (b"4", 4)]
    assert history.newest(1) == [(b"4", 4)]
    assert history.newest(9) == history.newest(0)


def test_oldest_messages_go_when_there_are_too_many_bytes_but_never_the_newest() -> None:
    history = History(10)
    half = bytes(HISTORY_BYTES_MAX // 2)
    history.add([half, half, b"x"], [1, 2, 3])
    assert [time for _, time in history.newest(0)] == [2, 3]
    history.add([bytes(HISTORY_BYTES_MAX + 1)], [4])
    assert [time for _, time in history.newest(0)] == [4]


@pytest.mark.parametrize("count", [0, 7, HISTORY_MESSAGES_MAX])
def test_request_is_read_as_it_was_written(count: int) -> None:
    assert read_request(write_request(17, count, "/a b/...")) == (17, count, "/a b/...")


@pytest.mark.parametrize(
    "entry",
    ["/a", "17", "17 /a", "0 0 /a", "4294967296 0 /a", "-1 0 /a", "1 x /a", "², 0 /a", "", " "],
)
def test_what_is_no_request_is_not_taken_for_one(entry: str) -> None:
    assert read_request(entry) is None


class Latecomer:
    """What a subscription with history gets of a node of the harness."""

    def __init__(self, lan: Lan, node: Node, pattern: str, links: Links = ()) -> None:
        self.got: list[tuple[str, int, bytes]] = []
        self.joining = Joining(self._take, lambda topic, first, last: None)
        node.core.join(lan.now, pattern, 1, links=links)
        self.drain = node.drain
        node.drain = self._drain  # type: ignore[method-assign]
        self.node = node

    def _drain(self, now: int) -> None:
        for delivery in self.node.core.deliveries:
            self.joining.take(delivery)
        self.drain(now)

    def _take(self, delivery: Delivery) -> None:
        for place, payload in enumerate(delivery.payloads):
            self.got.append((delivery.topic.subject, delivery.first + place, payload))


def open_publisher(*payloads: bytes, history: int = 10) -> tuple[Lan, Node, OutgoingTopic]:
    lan = Lan(1)
    publisher = lan.nodes[0]
    lan.run(60 * MS)
    topic = publisher.core.publish_on(lan.now, "/a", history=history)
    lan.publish(publisher, topic, *payloads)
    return lan, publisher, topic


def test_history_comes_before_what_is_published_while_it_is_on_its_way() -> None:
    lan, publisher, topic = open_publisher(b"1", b"2")
    late = Latecomer(lan, lan.add(), "/a")
    lan.lose = lambda datagram, _: datagram.kind == DATA and datagram.sequence == 1
    lan.run_until(lambda: topic.receivers == 1, 100 * MS)
    lan.publish(publisher, topic, b"3")
    lan.run(1 * MS)
    assert late.got == []
    lan.lose = lambda datagram, node: False
    lan.run(200 * MS)
    assert late.got == [("/a", 1, b"1"), ("/a", 2, b"2"), ("/a", 3, b"3")]


def test_history_comes_by_the_stream_of_the_links_that_are_insisted_on() -> None:
    lan, publisher, topic = open_publisher(b"1", b"2")
    late = Latecomer(lan, lan.add(), "/a", (MULTICAST,))
    lan.run_until(lambda: topic.receivers == 1, 100 * MS)
    lan.publish(publisher, topic, b"3")
    lan.run(200 * MS)
    assert [got[2] for got in late.got] == [b"1", b"2", b"3"]
    streams = {each.header.stream for each in lan.sent if each.kind == DATA}
    assert {LINKS_OF.get(stream) for stream in streams} == {(MULTICAST,)}
    late.node.core.leave(lan.now, "/a", 1, (MULTICAST,))
    lan.run(200 * MS)
    (peer,) = publisher.core.peers.values()
    assert peer.declared.patterns == {} and not peer.requests and not topic.receivers


def test_request_is_met_by_what_comes_by_its_links_alone() -> None:
    interest, declared = Interest(), Declared()
    by_tcp = name_by("/a", (TCP,))
    entry = interest.ask(1, "/a", 7, (TCP,))
    declared.apply(Change(0, [Step(WANTS, entry)]))
    for asks in (interest.asks, declared.asks):
        assert list(asks.match(by_tcp)) == list(asks.match_all("/a")) == [1]
        assert not asks.match("/a") and not asks.match(name_by("/b", (TCP,)))
    assert declared.requests == {1: 7}
    interest.withdraw(1)
    assert not interest.asks.match(by_tcp)


@pytest.mark.parametrize("is_granted", [True, False])
def test_topic_of_which_only_the_grant_tells_may_have_history(is_granted: bool) -> None:
    receiver = Receiver(
        RELIABLE,
        SOURCE,
        1,
        Random(0),
        0,
        Share(Budget(1)),
        lambda name: True,
        asks=lambda name: [1],
    )
    receiver.declare(Topic(16, RELIABLE, "/a", 9), is_granted=is_granted)
    assert bool(receiver.joins.pending) is is_granted
    assert bool(receiver.joins.ready) is not is_granted, "a frame names what begins with it"


@pytest.mark.parametrize("is_published_meanwhile", [True, False])
def test_history_is_waited_for_though_frames_overtake_the_grant_that_a_link_caused(
    is_published_meanwhile: bool,
) -> None:
    lan = Lan(2)
    publisher, node = lan.nodes
    late, core = Latecomer(lan, node, "/a/..."), publisher.core
    there = core.publish_on(lan.now, "/a/there", links=(TCP,))
    lan.run(100 * MS)
    core.open_pipe(lan.now, node.key, link=TCP)
    framer = core.outgoing.sender_of(there).framer
    framer.add(there, b"0", lan.now)
    carry(lan, publisher, node, GRANT)
    core.close_pipe(lan.now, node.key, is_dead=False, link=TCP)
    topic = core.publish_on(lan.now, "/a/later", links=(TCP,), history=9)
    lan.publish(publisher, topic, b"1", b"2")
    lan.run(100 * MS)
    assert topic.number not in core.peers[node.key].debt.owed, "no link leads there"
    core.open_pipe(lan.now, node.key, link=TCP)
    if is_published_meanwhile:
        framer.add(topic, b"3", lan.now)
    for _ in range(10):
        carry(lan, publisher, node)
        lan.run(20 * MS)
    numbers = (1, 2, 3) if is_published_meanwhile else (1, 2)
    assert late.got[1:] == [("/a/later", number, b"%d" % number) for number in numbers]
    assert node.events_of(GapAbandoned) == []


def test_history_is_served_once_a_request_and_owed_no_longer_than_needed() -> None:
    lan, publisher, topic = open_publisher(b"1")
    late = Latecomer(lan, lan.add(), "/a")
    lan.run(200 * MS)
    (peer,) = publisher.core.peers.values()
    assert publisher.core.outgoing.replays.of(peer) == []
    late.node.core.subscribe(lan.now, "/b")
    lan.run(200 * MS)
    assert late.got == [("/a", 1, b"1")] and publisher.core.outgoing.replays.served == 1
    assert list(peer.debt.owed) == [topic.number]
    (known,) = late.node.core.peers.values()
    assert [t.subject for r in known.incoming.values() for t in r.topics.values()] == ["/a"]


def test_others_take_nothing_of_a_history_that_they_did_not_ask_for() -> None:
    lan, publisher, topic = open_publisher()
    (live,) = lan.open(1, "/a")
    lan.publish(publisher, topic, b"1", b"2")
    lan.run(50 * MS)
    Latecomer(lan, lan.add(), "/a")
    lan.run(200 * MS)
    assert live.payloads("/a") == [b"1", b"2"]
    assert live.events_of(GapAbandoned) == [] and live.drops == {}


def test_lost_grant_of_a_history_is_repeated_though_all_frames_of_it_have_come() -> None:
    lan, _, _ = open_publisher(b"1", b"2")
    lan.lose = lose_first(4, kind=GRANT)
    late = Latecomer(lan, lan.add(), "/a")
    lan.run(1 * SECOND)
    assert late.got == [("/a", 1, b"1"), ("/a", 2, b"2")]


def test_history_that_overtook_a_grant_is_taken_though_that_answers_an_older_interest() -> None:
    payloads = [b"1", bytes(2000)]  # The second one takes two frames, neither of which names it.
    lan, publisher, _ = open_publisher(*payloads)
    publisher.core.publish_on(lan.now, "/b")
    (node,) = lan.open(1, "/b")
    late = Latecomer(lan, node, "/a")
    lan.lose = lambda sent, _: sent.kind == GRANT or sent.sequence == 2
    lan.run(2 * MS)
    (peer,) = node.core.peers.values()
    (receiver,) = peer.incoming.values()
    assert receiver.held and not late.got, "the beginning came, and nobody has named it"
    node.core.subscribe(lan.now, "/c")
    lan.lose = lambda sent, _: sent.sender is node or sent.kind == DATA
    assert lan.run_until(lambda: bool(receiver.joins.replays), 1 * SECOND)
    lan.lose = lambda sent, _: sent.kind in (CHANGE, HELLO, HEARTBEAT)
    lan.run(200 * MS)
    assert peer.granted_version < node.core.interest.version
    assert [got[2] for got in late.got] == payloads
    assert node.events_of(GapAbandoned) == []


def test_history_that_is_gone_before_it_could_be_repaired_is_reported_and_the_rest_comes() -> None:
    lan, publisher, topic = open_publisher(b"1", b"2", b"3")
    late = Latecomer(lan, lan.add(), "/a")
    lan.lose = lambda datagram, _: datagram.kind == DATA and datagram.sender is publisher
    lan.run(30 * MS)
    cache = publisher.core.outgoing.cache
    for sequence in list(cache.bodies):
        cache._evict(sequence)
    lan.lose = lambda datagram, node: False
    lan.publish(publisher, topic, b"4")
    lan.run(1 * SECOND)
    assert late.got == [("/a", 4, b"4")]
    gaps = [(e.subject, e.first, e.last) for e in late.node.events_of(GapAbandoned)]
    assert gaps == [("/a", 1, 3)]


def test_publisher_that_dies_while_its_history_is_missing_keeps_nobody_waiting() -> None:
    lan, publisher, topic = open_publisher(b"1")
    late = Latecomer(lan, lan.add(), "/a")
    lan.lose = lambda datagram, _: datagram.kind == DATA and datagram.sequence == 1
    lan.run_until(lambda: topic.receivers == 1, 100 * MS)
    lan.publish(publisher, topic, b"2")
    lan.run(2 * MS)
    publisher.is_running = False
    lan.run(100 * SECOND)
    assert late.got == [("/a", 2, b"2")]
    assert late.joining._held == {}


def test_withdrawn_request_ends_its_history() -> None:
    lan, publisher, _ = open_publisher(*[bytes(1000)] * 10)
    late = Latecomer(lan, lan.add(), "/a")
    lan.lose = lambda datagram, _: datagram.kind == DATA
    lan.run(20 * MS)
    (peer,) = publisher.core.peers.values()
    assert len(publisher.core.outgoing.replays.of(peer)) == 1
    late.node.core.leave(lan.now, "/a", 1)
    lan.run(20 * MS)
    assert publisher.core.outgoing.replays.of(peer) == [] and peer.debt.served == {}


def test_many_histories_are_granted_in_parts_that_fit_a_frame() -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    lan.run(60 * MS)
    for number in range(300):
        topic = publisher.core.publish_on(lan.now, f"/plant/line{number}/temp", history=1)
        lan.publish(publisher, topic, b"%d" % number)
    late = Latecomer(lan, lan.add(), "/plant/...")
    lan.run(500 * MS)
    assert max(len(each.data) for each in lan.sent) <= 1400
    assert sorted(got[2] for got in late.got) == sorted(b"%d" % number for number in range(300))


def test_peer_that_asks_for_too_much_at_a_time_gets_what_is_new() -> None:
    lan, publisher, topic = open_publisher(b"1")
    subscriber = lan.add()
    for request in range(1, REPLAYS_PER_PEER_MAX + 100):
        subscriber.core.interest.ask(request, "/a", 0)
    subscriber.core.subscribe(lan.now, "/a")
    lan.lose = lambda datagram, _: datagram.kind == DATA
    lan.run(60 * MS)
    (peer,) = publisher.core.peers.values()
    assert len(publisher.core.outgoing.replays.of(peer)) == REPLAYS_PER_PEER_MAX
    assert topic.receivers == 1


def test_some_of_a_history_is_sent_though_more_than_enough_waits_all_the_time() -> None:
    lan, publisher, topic = open_publisher(*[b"old"] * 300, history=300)
    outgoing = publisher.core.outgoing
    for _ in range(2000):
        outgoing.reliable.framer.add(publisher.core.publish_on(lan.now, "/busy"), b"x", 0)
    peer = Peer(bytes(20), ("10.0.0.9", 7000), lan.now)
    peer.requests[1] = 0
    peer.asks.add("/a", 1)
    peer.debt.placed[topic.number] = (RELIABLE,)
    outgoing.replays.join(peer, topic)
    (replay,) = outgoing.replays.of(peer)
    few = replay.waiting
    assert 1 <= few <= 100
    outgoing.replays.feed()
    assert replay.waiting == outgoing.reliable.framer.count_pending(replay.topic) == few


@pytest.mark.parametrize(
    "stated",
    [(40, 16, 1, 5, 5), (40, 16, 1, 6, 5), (40, 16, 1, 1, 2**63), (16, 16, 1, 1, 3)],
)
def test_history_that_cannot_be_one_is_counted_and_nobody_waits_for_it(stated: Any) -> None:
    lan, publisher, topic = open_publisher()
    late = Latecomer(lan, lan.add(), "/a")
    assert topic.number == 16
    forged = Replayed(*stated)
    (peer,) = lan.run_until(lambda: bool(late.node.core.peers), 50 * MS) and (
        late.node.core.peers.values()
    )
    lan.run(1 * MS)
    late.node.core.subscribe(lan.now, "/b")
    peer.grant_replays[1] = forged
    receiver = peer.incoming[1]
    receiver.joins.pending[16, 1] = receiver.topics[16]
    assert not receiver.joins.begin(forged)
    lan.run(100 * MS)
    lan.publish(publisher, topic, b"new")
    lan.run(50 * MS)
    assert late.got == [("/a", 1, b"new")]


def make_live() -> IncomingTopic:
    return IncomingTopic(16, "/a", SOURCE, [], Way(), is_reliable=True, is_wanted=True)


def run(topic: IncomingTopic, first: int, count: int = 1) -> Delivery:
    return Delivery(topic, first, [bytes(100)] * count, [0] * count, 0, MULTICAST)


def test_what_is_new_is_handed_out_from_where_the_history_ends() -> None:
    got: list[tuple[int, int]] = []
    joining = Joining(lambda d: got.append((d.first, len(d.payloads))), lambda *_: None)
    live = make_live()
    history = ReplayedTopic(17, live, 1, 6, [], Way())
    for delivery in [run(live, 4, 3), run(live, 7), run(history, 2, 2), run(history, 4, 2)]:
        joining.take(delivery)
    joining.take(run(live, 5))  # Repaired late.
    joining.take(run(live, 8))
    joining.take(answer(history, 0))
    assert got == [(2, 2), (4, 2), (6, 1), (7, 1), (8, 1)]
    assert joining._held == joining._held_bytes == {}


def test_what_is_new_waits_only_as_long_as_there_is_room_and_the_hole_is_reported() -> None:
    got: list[int] = []
    holes: list[tuple[int, int]] = []
    joining = Joining(
        lambda d: got.append(d.first), lambda _, first, last: holes.append((first, last)), 250
    )
    live = make_live()
    history = ReplayedTopic(17, live, 1, 6, [], Way())
    joining.take(run(history, 2))
    for sequence in (6, 7, 8):
        joining.take(run(live, sequence))
    joining.take(run(history, 3))
    assert got == [2, 6, 7, 8] and holes == [(3, 5)]


def test_topics_that_ended_are_not_remembered() -> None:
    joining = Joining(lambda _: None, lambda *_: None)
    live = make_live()
    joining.take(answer(ReplayedTopic(0, live, 1, 0, [], Way()), 0))
    assert len(joining._open) == 1
    del live
    assert len(joining._open) == 0

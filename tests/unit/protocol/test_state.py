"""What nodes declare: told at once and cheaply, complete however it comes, within bounds."""

from random import Random

import pytest
from msgspec import structs

from hubbub.events import (
    PeerJoined,
    PeerLeft,
    PublisherMatched,
    PublisherUnmatched,
    SubscriberMatched,
    SubscriberUnmatched,
)
from hubbub.limits import (
    ANNOUNCE_SPACING,
    FRAME_BYTES_MIN,
    MS,
    PATTERNS_MAX,
    PUBLICATIONS_BYTES_MAX,
    PUBLICATIONS_MAX,
    SECOND,
    STEPS_MAX,
    SUBJECT_BYTES_MAX,
)
from hubbub.message import Source
from hubbub.protocol.declared import Declared
from hubbub.protocol.peers import Peer
from hubbub.protocol.state import State
from hubbub.protocol.topics import OutgoingTopic
from hubbub.wire import control
from hubbub.wire.control import (
    PUBLISHES,
    PUBLISHES_NO_MORE,
    WANTS,
    Change,
    Hello,
    Publication,
    Step,
)
from hubbub.wire.header import BEST_EFFORT, CHANGE, HEADER_BYTES, HELLO, RELIABLE, WANT
from tests.harness import Lan, Node, lose_first

PAST_ALL_REPEATS = 100 * MS


def hello(version: int = 2, part: int = 0, parts: int = 1, patterns: int = 1) -> Hello:
    names = [f"/{part}/{number}" for number in range(patterns)]
    return Hello(
        "peer", "host", 7, "default", version, part, parts, names, 1 << 20, [], True,
        version=version,
    )  # fmt: skip


def publishing(*subjects: str, base: int = 0) -> Change:
    return Change(base, [Step(PUBLISHES, subject, RELIABLE) for subject in subjects])


def peer_of(node: Node, other: Node) -> Peer:
    return node.core.peers[other.key]


def views(node: Node, other: Node) -> tuple[set[str], set[str]]:
    """Return what a node knows of another: its patterns and what it publishes."""
    declared = peer_of(node, other).declared
    return set(declared.patterns), set(declared.publications)


def settled(count: int, **options: int) -> tuple[Lan, list[Node]]:
    lan = Lan(count, **options)
    lan.run(1200 * MS)  # Just past a heartbeat: the next one, which tells the version, is far.
    lan.sent.clear()
    return lan, lan.nodes


# Snapshots.


def test_parts_of_an_older_snapshot_are_dropped_for_a_newer() -> None:
    declared = Declared()
    assert declared.collect(hello(2, 0, 2)) is None
    assert declared.collect(hello(3, 1, 2)) is None
    assert declared.collect(hello(2, 1, 2)) is None
    assert declared.collect(hello(3, 0, 2)) == (["/0/0", "/1/0"], [])


def test_parts_that_contradict_each_other_complete_nothing() -> None:
    declared = Declared()
    assert declared.collect(hello(2, 5, 5)) is None
    assert declared.collect(hello(2, 0, 3)) is None
    assert declared.collect(hello(2, 1, 2)) is None
    assert declared.collect(hello(2, 0, 2)) == (["/0/0", "/1/0"], [])


def test_endless_interest_is_not_collected() -> None:
    declared = Declared()
    for part in range(1000):
        assert declared.collect(hello(2, part, 2000, patterns=100)) is None
        assert declared._snapshot._patterns <= PATTERNS_MAX


def test_malformed_patterns_of_a_peer_match_nothing_and_hurt_no_others() -> None:
    declared = Declared()
    news = declared.replace(hello(), ["", "/.../x", "no", "/a/*"], [])
    assert declared.matcher.match("/a/b") and not declared.matcher.match("/x")
    assert news.refused == 3


def test_publications_beyond_the_bounds_are_counted_and_not_kept() -> None:
    declared = Declared()
    many = [Publication(f"/{number}", RELIABLE) for number in range(PUBLICATIONS_MAX + 10)]
    assert declared.replace(hello(), [], many).refused == 10
    assert len(declared.publications) == PUBLICATIONS_MAX
    long = "x" * (SUBJECT_BYTES_MAX - 10)
    count = PUBLICATIONS_BYTES_MAX // SUBJECT_BYTES_MAX + 500
    news = declared.replace(
        hello(3), [], [Publication(f"/{number:06}{long}", RELIABLE) for number in range(count)]
    )
    assert 0 < news.refused < 500
    assert sum(map(len, declared.publications)) <= PUBLICATIONS_BYTES_MAX


@pytest.mark.parametrize("subject", ["", "no", "/a/*", "/a//b", "/a\n"])
def test_malformed_publications_are_counted_and_not_kept(subject: str) -> None:
    declared = Declared()
    news = declared.apply(publishing(subject, "/good"))
    assert news is not None and news.refused == 1 and [*declared.publications] == ["/good"]
    assert declared.version == 2


def test_snapshot_with_too_many_publications_keeps_what_fits_while_it_is_collected() -> None:
    declared = Declared()
    parts = PUBLICATIONS_MAX // 1000 + 2
    for part in range(parts):
        publications = [Publication(f"/{part}/{number}", RELIABLE) for number in range(1000)]
        base = hello(2, part, parts)
        whole = structs.replace(base, publications=publications)
        snapshot = declared.collect(whole)
    assert snapshot is not None and len(snapshot[1]) == PUBLICATIONS_MAX // 1000 * 1000
    assert declared.replace(hello(2), *snapshot).refused == parts * 1000 - len(snapshot[1])


def test_snapshot_tells_what_is_new_and_what_is_gone() -> None:
    declared = Declared()
    first = [Publication("/a", RELIABLE), Publication("/b", RELIABLE), Publication("/c", RELIABLE)]
    declared.replace(hello(2), [], first)
    second = [Publication("/b", RELIABLE, sequence=7), Publication("/c", BEST_EFFORT)]
    news = declared.replace(hello(3), [], [*second, Publication("/d", RELIABLE)])
    assert sorted(one.subject for one in news.published) == ["/c", "/d"]
    assert sorted(news.withdrawn) == ["/a", "/c"]


# Changes.


def test_change_is_taken_where_it_joins_and_only_what_is_new_of_it() -> None:
    declared = Declared()
    assert declared.apply(publishing("/b", base=1)) is None, "something before it is missing"
    assert declared.apply(publishing("/a", "/b")) is not None
    news = declared.apply(publishing("/b", "/c", base=1))
    assert news is not None and [one.subject for one in news.published] == ["/c"]
    assert declared.apply(publishing("/a", "/b", "/c")) is None, "all of it is known"
    assert [*declared.publications] == ["/a", "/b", "/c"] and declared.version == 3


def test_what_came_and_went_within_one_change_is_no_news() -> None:
    declared = Declared()
    declared.apply(publishing("/stays"))
    steps = [Step(PUBLISHES, "/a", RELIABLE), Step(PUBLISHES_NO_MORE, "/a")]
    news = declared.apply(Change(1, [*steps, Step(PUBLISHES_NO_MORE, "/stays")]))
    assert news is not None and (news.published, news.withdrawn) == ([], ["/stays"])


def test_step_of_a_later_version_of_the_protocol_only_counts() -> None:
    declared = Declared()
    news = declared.apply(Change(0, [Step(99, "/a"), Step(WANTS, "/b")]))
    assert news is not None and news.is_new_interest
    assert (declared.version, declared.interest_version) == (2, 2)
    assert [*declared.patterns] == ["/b"]


def test_publications_alone_do_not_change_what_grants_answer() -> None:
    lan, (first, second) = settled(2)
    before = peer_of(second, first).interest_version
    first.core.publish_on(lan.now, "/a")
    lan.run(PAST_ALL_REPEATS)
    declared = peer_of(second, first).declared
    assert [*declared.publications] == ["/a"] and declared.interest_version == before


def test_steps_that_run_over_are_told_as_a_snapshot() -> None:
    lan, (first, second) = settled(2)
    for number in range(STEPS_MAX + 10):
        first.core.publish_on(lan.now, f"/{number}")
    lan.run(2 * SECOND)
    assert lan.sent_of(HELLO, first) and not lan.sent_of(CHANGE, first)
    assert len(peer_of(second, first).declared.publications) == STEPS_MAX + 10
    assert first.core.state.base == first.core.state.version


@pytest.mark.parametrize("kind", ["publisher", "subscription"])
def test_change_is_told_at_once_and_repeated_twice_and_costs_what_changed(kind: str) -> None:
    lan, (first, second) = settled(2)
    for number in range(500):
        first.core.publish_on(lan.now, f"/before/{number}")
    lan.run(1 * SECOND)
    lan.sent.clear()
    if kind == "publisher":
        first.core.publish_on(lan.now, "/a")
    else:
        first.core.subscribe(lan.now, "/a")
    assert lan.run_until(lambda: "/a" in views(second, first)[kind == "publisher"], 1 * MS)
    lan.run(PAST_ALL_REPEATS)
    sent = lan.sent_of(CHANGE, first)
    assert len(sent) == 3 and not lan.sent_of(HELLO, first)
    assert max(len(each.data) for each in sent) < HEADER_BYTES + 60


def test_lost_change_is_brought_by_its_repetitions() -> None:
    lan, (first, second) = settled(2)
    lan.lose = lose_first(2, kind=CHANGE)
    first.core.publish_on(lan.now, "/a")
    lan.run(25 * MS)
    assert views(second, first)[1] == {"/a"} and not lan.sent_of(WANT)


def test_change_that_was_lost_for_good_is_asked_for_when_the_next_one_comes() -> None:
    lan, (first, second) = settled(2)
    lan.lose = lose_first(3, kind=CHANGE)
    first.core.publish_on(lan.now, "/a")
    lan.run(PAST_ALL_REPEATS)
    assert views(second, first)[1] == set()
    first.core.publish_on(lan.now, "/b")
    lan.run(PAST_ALL_REPEATS)
    assert views(second, first)[1] == {"/a", "/b"}
    assert len(lan.sent_of(WANT, second)) == 1


def test_thousand_changes_at_once_are_a_few_frames() -> None:
    lan, (first, second) = settled(2)
    for number in range(1000):
        first.core.publish_on(lan.now, f"/plant/line1/{number}")
    lan.run(PAST_ALL_REPEATS)
    assert len(views(second, first)[1]) == 1000
    frames = len(lan.sent_of(CHANGE, first))
    assert frames <= 3 * (1000 * 50 // 1300 + 1), frames
    assert not lan.sent_of(HELLO, first)


def test_changes_that_follow_each_other_quickly_share_frames() -> None:
    lan, (first, second) = settled(2)
    for number in range(1000):
        first.core.publish_on(lan.now, f"/{number}")
        lan.run(100_000)
    lan.run(PAST_ALL_REPEATS)
    assert len(views(second, first)[1]) == 1000
    rounds = 100 * MS // ANNOUNCE_SPACING
    assert len(lan.sent_of(CHANGE, first)) <= 3 * rounds


def test_newcomer_in_the_midst_of_changes_knows_all_in_the_end() -> None:
    for seed in range(10):
        lan, (first,) = settled(1, seed=seed)
        random = Random(seed)
        topics = []
        newcomer = None
        for number in range(300):
            if topics and random.random() < 0.4:
                topic = topics.pop(random.randrange(len(topics)))
                first.core.publish_no_more(lan.now, topic)
            else:
                topics.append(first.core.publish_on(lan.now, f"/plant/{number}"))
            lan.run(random.choice([0, 200_000, 3 * MS]))
            if number == 100:
                newcomer = lan.add()
        lan.run(PAST_ALL_REPEATS)
        assert newcomer is not None
        assert views(newcomer, first)[1] == {topic.subject for topic in topics}


def test_heartbeat_of_untold_changes_asks_nobody_to_ask() -> None:
    lan, (first, second) = settled(2, heartbeat_ms=50, peer_timeout_ms=1000)
    for number in range(100):
        first.core.publish_on(lan.now, f"/{number}")
        lan.run(1 * MS)
    lan.run(PAST_ALL_REPEATS)
    assert not lan.sent_of(WANT) and len(views(second, first)[1]) == 100


def test_node_at_rest_sends_the_same_however_much_it_declares() -> None:
    lan, (first, second) = settled(2)
    for number in range(2000):
        first.core.publish_on(lan.now, f"/{number}")
    lan.run(2 * SECOND)
    lan.sent.clear()
    lan.run(10 * SECOND)
    sizes = {
        node: sum(len(each.data) for each in lan.sent if each.sender is node) for node in lan.nodes
    }
    assert sizes[first] == sizes[second] <= 10 * 200


def test_longest_subject_fits_into_the_smallest_frame() -> None:
    lan, (first, second) = settled(2, frame_bytes_max=FRAME_BYTES_MIN)
    subject = "/" + "x" * (SUBJECT_BYTES_MAX - 1)
    first.core.publish_on(lan.now, subject, schema_name="T" * 300, schema_hash=2**64 - 1)
    first.core.subscribe(lan.now, subject)
    lan.run(PAST_ALL_REPEATS)
    third = lan.add()
    lan.run(PAST_ALL_REPEATS)
    for node in (second, third):
        assert views(node, first) == ({subject}, {subject})


def test_own_state_is_split_the_same_way_while_it_is_the_same() -> None:
    lan, (first, _) = settled(2)
    topics = [first.core.publish_on(lan.now, f"/{number}") for number in range(200)]
    before = [len(publications) for _, publications in first.core.discovery._parts(200)]
    for topic in topics:
        topic.next_sequence += 2**40
    assert [len(publications) for _, publications in first.core.discovery._parts(200)] == before


def test_closing_one_of_two_publishers_leaves_the_other() -> None:
    lan, (first, second) = settled(2)
    topic = first.core.publish_on(lan.now, "/a")
    assert first.core.publish_on(lan.now, "/a") is topic
    first.core.publish_no_more(lan.now, topic)
    lan.run(PAST_ALL_REPEATS)
    assert views(second, first)[1] == {"/a"}
    first.core.publish_no_more(lan.now, topic)
    lan.run(PAST_ALL_REPEATS)
    assert views(second, first)[1] == set()
    topic.next_sequence = 8
    assert first.core.publish_on(lan.now, "/a") is topic
    lan.run(PAST_ALL_REPEATS)
    assert peer_of(second, first).declared.publications["/a"].sequence == 7


def test_state_forgets_no_step_that_is_still_to_be_told() -> None:
    state = State()
    for number in range(3 * STEPS_MAX):
        state.publish(OutgoingTopic(16, f"/{number}", Source("", bytes(12), 1), is_reliable=True))
        assert state.version - state.base <= STEPS_MAX
    assert len(state.topics) == 3 * STEPS_MAX


# Matches.


def matches(node: Node) -> list[tuple[str, str]]:
    """Return the events about matches that a node has told since the last look."""
    kinds = (PublisherMatched, PublisherUnmatched, SubscriberMatched, SubscriberUnmatched)
    found = [(type(e).__name__, e.subject) for e in node.events if isinstance(e, kinds)]
    node.events.clear()
    return found


def test_both_sides_are_told_of_a_match_and_of_its_end() -> None:
    lan, (first, second) = settled(2)
    topic = first.core.publish_on(lan.now, "/a/b")
    first.core.publish_on(lan.now, "/elsewhere")
    second.core.subscribe(lan.now, "/a/*")
    lan.run(PAST_ALL_REPEATS)
    assert matches(first) == [("SubscriberMatched", "/a/b")]
    assert matches(second) == [("PublisherMatched", "/a/b")]
    first.core.publish_no_more(lan.now, topic)
    lan.run(PAST_ALL_REPEATS)
    assert matches(first) == [("SubscriberUnmatched", "/a/b")]
    assert matches(second) == [("PublisherUnmatched", "/a/b")]
    first.core.publish_on(lan.now, "/a/b")
    lan.run(PAST_ALL_REPEATS)
    second.core.unsubscribe(lan.now, "/a/*")
    lan.run(PAST_ALL_REPEATS)
    assert matches(first) == [("SubscriberMatched", "/a/b"), ("SubscriberUnmatched", "/a/b")]
    assert matches(second) == [("PublisherMatched", "/a/b"), ("PublisherUnmatched", "/a/b")]


def test_second_pattern_for_the_same_subject_is_no_second_match() -> None:
    lan, (first, second) = settled(2)
    first.core.publish_on(lan.now, "/a")
    for pattern in ("/a", "/*", "/..."):
        second.core.subscribe(lan.now, pattern)
        lan.run(PAST_ALL_REPEATS)
    second.core.unsubscribe(lan.now, "/*")
    lan.run(PAST_ALL_REPEATS)
    assert matches(first) == [("SubscriberMatched", "/a")]
    assert matches(second) == [("PublisherMatched", "/a")]


@pytest.mark.parametrize("way", ["goodbye", "silence"])
def test_leaving_ends_the_matches_before_the_peer_has_left(way: str) -> None:
    lan, (first, second) = settled(2, heartbeat_ms=100, peer_timeout_ms=300)
    for node, other in ((first, second), (second, first)):
        node.core.publish_on(lan.now, f"/{node.core.endpoint.identity.pid}")
        other.core.subscribe(lan.now, "/...")
    lan.run(PAST_ALL_REPEATS)
    first.events.clear()
    if way == "goodbye":
        second.core.close(lan.now, 100 * MS)
    else:
        second.is_running = False
    lan.run(1 * SECOND)
    told = [type(event) for event in first.events]
    assert told == [PublisherUnmatched, SubscriberUnmatched, PeerLeft]


def test_peer_that_returns_is_matched_again() -> None:
    lan, (first, second) = settled(2, heartbeat_ms=100, peer_timeout_ms=300)
    first.core.publish_on(lan.now, "/a")
    second.core.subscribe(lan.now, "/a")
    lan.run(PAST_ALL_REPEATS)
    lan.lose = lambda _datagram, _node: True
    lan.run(1 * SECOND)
    lan.lose = lambda _datagram, _node: False
    lan.run(1 * SECOND)
    expected = ["Matched", "Unmatched", "Matched"]
    assert matches(first) == [(f"Subscriber{what}", "/a") for what in expected]
    assert [type(e) for e in second.events if isinstance(e, PeerJoined)] == [PeerJoined] * 2
    assert matches(second) == [(f"Publisher{what}", "/a") for what in expected]


def test_change_of_a_stranger_is_not_taken_but_makes_it_be_asked() -> None:
    lan, (first,) = settled(1)
    lan.lose = lambda datagram, _: datagram.kind == HELLO
    stranger = lan.add()
    lan.run(100 * MS)
    stranger.core.publish_on(lan.now, "/a")
    lan.run(100 * MS)
    assert lan.sent_of(WANT, first) and not peer_of(first, stranger).is_known
    lan.lose = lambda _datagram, _node: False
    lan.run(2 * SECOND)
    assert views(first, stranger)[1] == {"/a"}


def test_malformed_change_is_counted() -> None:
    lan, (first, second) = settled(2)
    second.core.endpoint.send(None, CHANGE, 0, b"\x92\x01\x91\xc0")
    lan.run(10 * MS)
    assert first.drops["malformed"] == 1
    assert control.decode(Change, b"\x92\x01\x91\xc0") is None

"""What nodes declare of links they insist on, who is served over which, and who is told."""

from random import Random

import pytest

from hubbub.errors import ConfigurationError
from hubbub.events import NoCommonLink
from hubbub.limits import LINKLESS_PATIENCE, MS, SECOND
from hubbub.message import Source
from hubbub.protocol.burst import NOWHERE, ChosenPipes, Pipes
from hubbub.protocol.declared import Declared
from hubbub.protocol.delivery import LOCAL, MULTICAST, TCP
from hubbub.protocol.reassembly import Budget, Share
from hubbub.protocol.receiver import Receiver
from hubbub.protocol.state import Interest
from hubbub.protocol.ways import Ways
from hubbub.wire.control import WANTS, WANTS_NO_MORE, Change, Step, Topic
from hubbub.wire.header import GRANT, KIND_OFFSET, RELIABLE
from hubbub.wire.wishes import LINKS_OF, Links, encode_links
from tests.harness import Lan, Node, carry

BY_TCP = f"@{encode_links([TCP])} /a"
BY_GROUP = f"@{encode_links([MULTICAST])} /a"
A, B = b"a" * 20, b"b" * 20
SOURCE = Source("p", b"p" * 12, 1)


def read_kind(buffers: list[bytes | memoryview]) -> int:
    return b"".join(buffers)[KIND_OFFSET]


def declared_by(*steps: tuple[int, str]) -> Declared:
    declared = Declared()
    declared.apply(Change(0, [Step(*step) for step in steps]))
    return declared


# What is told.


def test_links_are_told_before_the_pattern_and_taken_back_behind_it() -> None:
    interest = Interest()
    assert interest.add("/a", (TCP,)) == [BY_TCP, "/a"]
    assert interest.add("/a", (TCP,)) == []
    assert interest.remove("/a", (TCP,)) == []
    assert interest.remove("/a", (TCP,)) == ["/a", BY_TCP]
    assert not interest.patterns and not interest.includes("/a")


def test_any_link_is_told_only_beside_others() -> None:
    interest = Interest()
    assert interest.add("/a") == ["/a"]
    assert interest.add("/a", (TCP,)) == ["@0 /a", BY_TCP]
    assert interest.add("/a", (MULTICAST,)) == [BY_GROUP]
    assert interest.remove("/a", (TCP,)) == [BY_TCP]
    assert interest.remove("/a", (MULTICAST,)) == [BY_GROUP, "@0 /a"]
    assert [*interest.patterns] == ["/a"]
    assert interest.add("/a", (TCP,)) == ["@0 /a", BY_TCP]
    assert interest.remove("/a") == ["@0 /a"]
    assert interest.includes("/a") and not interest.includes_by("/a")
    assert interest.includes_by(BY_TCP)


@pytest.mark.parametrize("seed", range(20))
def test_whoever_hears_every_step_knows_what_is_wanted_by_what(seed: int) -> None:
    random, interest, declared = Random(seed), Interest(), Declared()
    held: list[Links] = []
    lists: list[Links] = [(), (TCP,), (MULTICAST, TCP), (LOCAL,)]
    for _ in range(60):
        if held and random.random() < 0.5:
            links = held.pop(random.randrange(len(held)))
            steps = [Step(WANTS_NO_MORE, entry) for entry in interest.remove("/a", links)]
        else:
            links = random.choice(lists)
            held.append(links)
            steps = [Step(WANTS, entry) for entry in interest.add("/a", links)]
        declared.apply(Change(declared.version, steps))
        assert set(declared.wishes_for("/a")) == set(held)
        assert set(declared.patterns) == set(interest.patterns)
        assert declared.sound_patterns() == (("/a",) if held else ())


def test_between_two_steps_nothing_is_wanted_by_any_link() -> None:
    declared = declared_by((WANTS, BY_TCP))
    assert declared.wishes_for("/a") == [(TCP,)] and not declared.sound_patterns()
    declared = declared_by((WANTS, BY_TCP), (WANTS, "/a"), (WANTS_NO_MORE, "/a"))
    assert declared.wishes_for("/a") == [(TCP,)]


@pytest.mark.parametrize("entry", ["@28 no pattern", "@28 /a/.../b", "@28 "])
def test_malformed_names_are_counted_and_wanted_by_nothing(entry: str) -> None:
    declared = Declared()
    news = declared.apply(Change(0, [Step(WANTS, entry)]))
    assert news is not None and news.refused == 1
    assert declared.wishes_for("/a") == []
    assert declared.apply(Change(1, [Step(WANTS_NO_MORE, entry)])) is not None


# Which way.


def test_first_link_that_leads_there_is_taken() -> None:
    ways = Ways()
    ways.open(A, TCP, "10.0.0.7:7266")
    ways.open(A, LOCAL, "")
    for links, found in (
        ((TCP, LOCAL), TCP), ((LOCAL, TCP), LOCAL), ((MULTICAST, TCP), MULTICAST), ((LOCAL,), LOCAL)
    ):  # fmt: skip
        assert ways.link_to(A, links, is_heard=True) == found
    assert ways.link_to(A, (MULTICAST, TCP), is_heard=False) == TCP
    assert ways.link_to(B, (LOCAL, TCP), is_heard=True) == ""
    ways.close(A, LOCAL)
    assert ways.link_to(A, (LOCAL, TCP), is_heard=True) == TCP
    ways.has_group = False
    assert ways.link_to(A, (MULTICAST,), is_heard=True) == ""


def test_way_is_made_of_just_the_links_that_were_chosen() -> None:
    ways = Ways()
    assert ways.choose({A: MULTICAST, B: MULTICAST}, ()) is None
    near = ways.choose({A: LOCAL, B: LOCAL}, (B,))
    assert type(near) is Pipes and list(near) == [A]
    mixed = ways.choose({A: LOCAL, B: MULTICAST}, ())
    assert mixed == ChosenPipes((A,), has_group=True) != ChosenPipes((A,))
    assert ways.choose({A: TCP}, ()) == ChosenPipes(far=(A,)) != Pipes((A,))
    assert ways.choose({A: ""}, ()) == NOWHERE


def test_nothing_is_referred_to_while_somebody_is_out_of_reach() -> None:
    chosen = Ways().choose({A: LOCAL, B: ""}, ())
    assert chosen == ChosenPipes((A,)) and not chosen.is_near


# Between nodes.


def meet(published: Links, wanted: Links) -> tuple[Lan, Node, Node]:
    lan = Lan(2)
    publisher, subscriber = lan.nodes
    subscriber.core.subscribe(lan.now, "/t/...", wanted)
    publisher.core.publish_on(lan.now, "/t/x", links=published)
    lan.run(200 * MS)
    return lan, publisher, subscriber


def test_both_are_told_at_once_if_the_lists_have_nothing_in_common() -> None:
    lan, *nodes = meet((MULTICAST,), (TCP,))
    for node, is_publisher in zip(nodes, (False, True), strict=True):
        [told] = [event for event in node.events if isinstance(event, NoCommonLink)]
        assert (told.published, told.wanted) == ((MULTICAST,), (TCP,))
        assert told.is_hopeless and told.is_publisher == is_publisher
    assert not nodes[0].core.outgoing.by_subject["/t/x"].receivers
    lan.run(5 * SECOND)
    assert len([one for node in nodes for one in node.events if isinstance(one, NoCommonLink)]) == 2


def test_link_that_may_still_open_is_waited_for_before_it_is_told() -> None:
    lan, *nodes = meet((TCP,), ())
    assert not [one for node in nodes for one in node.events if isinstance(one, NoCommonLink)]
    lan.run(LINKLESS_PATIENCE)
    for node in nodes:
        [told] = [event for event in node.events if isinstance(event, NoCommonLink)]
        assert not told.is_hopeless and "no such link is open" in str(told)


def test_older_node_gets_nothing_of_a_publisher_that_insists_and_is_told_of() -> None:
    lan = Lan(2)
    publisher, older = lan.nodes
    older.core.endpoint.links = ()  # As the HELLO of one says that knows nothing of links.
    older.core.subscribe(lan.now, "/t/...")
    kept = publisher.core.publish_on(lan.now, "/t/x", links=(MULTICAST,))
    plain = publisher.core.publish_on(lan.now, "/t/y")
    lan.run(200 * MS)
    assert not kept.receivers and plain.receivers == 1
    assert [event.subject for event in publisher.events if isinstance(event, NoCommonLink)] == [
        "/t/x"
    ]


def test_topics_of_an_older_publisher_are_for_all_who_want_them() -> None:
    lan = Lan(3)
    older, newer, subscriber = lan.nodes
    older.core.endpoint.links = ()
    subscriber.core.subscribe(lan.now, "/t/...", (TCP,))
    lan.run(200 * MS)
    incoming, peers = subscriber.core.incoming, subscriber.core.peers
    assert incoming._asked_by(peers[older.key])("/t/x"), "it goes by the plain pattern"
    assert not incoming._asked_by(peers[newer.key])("/t/x")
    for knows_wishes, wish in ((True, ()), (False, None)):
        receiver = Receiver(
            RELIABLE, SOURCE, 1, Random(0), 0, Share(Budget(1)), lambda name: True,
            knows_wishes=knows_wishes,
        )  # fmt: skip
        receiver.declare(Topic(16, RELIABLE, "/t/x", 1))
        assert receiver.topics[16].wish == wish


def test_topic_of_a_publisher_that_insists_has_a_stream_of_its_own() -> None:
    _, publisher, subscriber = meet((MULTICAST, TCP), ())
    [peer] = subscriber.core.peers.values()
    owed = [stream for stream in peer.incoming if stream in LINKS_OF]
    assert [LINKS_OF[stream] for stream in owed] == [(MULTICAST, TCP)]
    assert publisher.core.outgoing.by_subject["/t/x"].receivers == 1


def test_whom_a_link_leads_to_after_the_last_message_is_owed_what_is_next() -> None:
    lan, publisher, subscriber = meet((TCP,), ())
    topic = publisher.core.outgoing.by_subject["/t/x"]
    lan.publish(publisher, topic, b"1", b"2")
    publisher.core.open_pipe(lan.now, subscriber.key, link=TCP)
    debt = publisher.core.peers[subscriber.key].debt
    assert debt.owed == {topic.number: 3} and topic.receivers == 1
    kinds = [read_kind(burst.buffers) for burst in publisher.core.endpoint.control]
    assert GRANT in kinds, "it is told before anything can be published to it"


def test_message_that_overtakes_the_grant_which_a_link_caused_is_not_dropped() -> None:
    lan = Lan(3)
    publisher, node, other = lan.nodes
    core = publisher.core
    there, later = (core.publish_on(lan.now, name, links=(TCP,)) for name in ("/a", "/b"))
    node.core.subscribe(lan.now, "/a")
    other.core.subscribe(lan.now, "/b")
    lan.run(100 * MS)
    for one in (node, other):
        core.open_pipe(lan.now, one.key, link=TCP)
    framer = core.outgoing.sender_of(there).framer
    framer.add(there, b"1", lan.now)
    framer.add(later, b"1", lan.now)
    carry(lan, publisher, node, GRANT)
    core.close_pipe(lan.now, node.key, is_dead=False, link=TCP)
    node.core.subscribe(lan.now, "/b")
    lan.run(100 * MS)
    core.open_pipe(lan.now, node.key, link=TCP)
    assert later.is_declared and later.receivers == 2, "no frame for all names it any more"
    framer.add(later, b"2", lan.now)
    carry(lan, publisher, node)
    assert node.payloads("/b") == [b"2"]
    receiver = node.core.peers[publisher.key].incoming[later.stream]
    assert not receiver.has_lost_names, "nobody asked for a history that could be missed"


def test_second_publisher_must_insist_on_the_same_links() -> None:
    _, publisher, _ = meet((MULTICAST,), ())
    with pytest.raises(ConfigurationError, match=r"links=\['multicast'\]; all publishers"):
        publisher.core.publish_on(0, "/t/x", links=(MULTICAST, TCP))

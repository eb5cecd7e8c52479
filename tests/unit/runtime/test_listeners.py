"""Who hears which events, in which order, and who is told of the peers that are here."""

from typing import Any, cast

import pytest

from hubbub.errors import ConfigurationError
from hubbub.events import (
    Closed,
    Event,
    PeerJoined,
    PeerLeft,
    PublisherMatched,
    PublisherUnmatched,
    SlowConsumer,
    SubscriberMatched,
    SubscriberUnmatched,
)
from hubbub.message import Source
from hubbub.runtime.listeners import Listeners
from hubbub.runtime.logs import LINES_PER_SECOND
from hubbub.runtime.matched import Match
from hubbub.runtime.pool import Pool

ONE, TWO = "239.1.1.1:1", "239.1.1.2:1"


class FakePool:
    """Runs a lane when told to."""

    def lane(self, step: Any) -> "FakePool":
        self.step = step
        self.has_work = False
        return self

    def notify(self) -> None:
        self.has_work = True

    def run(self) -> None:
        while self.has_work:
            self.has_work = self.step()


class Ears(list[Event]):
    def __call__(self, event: Event) -> None:
        self.append(event)


def make() -> tuple[FakePool, Listeners]:
    pool = FakePool()
    return pool, Listeners(cast(Pool, pool))


def joined(name: str, channel: str = ONE) -> PeerJoined:
    return PeerJoined(channel, Source(name, bytes(12), 1), "host", 1, "127.0.0.1:1")


def test_peer_that_joins_while_a_listener_comes_is_told_once() -> None:
    pool, listeners = make()
    event, early, late = joined("a"), Ears(), Ears()
    listeners.add(early)
    listeners.emit(event)
    listeners.add(late)  # Before the event was handed to anybody.
    pool.run()
    assert early == late == [event]


def test_listener_that_always_raises_does_not_flood_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pool, listeners = make()
    listeners.add(lambda event: 1 // 0)
    for number in range(1000):
        listeners.emit(joined(str(number)))
    pool.run()
    assert 0 < len(caplog.records) <= 2 * LINES_PER_SECOND


def test_peer_that_left_is_not_told_to_who_comes_later() -> None:
    pool, listeners = make()
    a, b, ears = joined("a"), joined("b"), Ears()
    for event in (a, b, PeerLeft(ONE, a.peer, "closed")):
        listeners.emit(event)
    listeners.add(ears)
    pool.run()
    assert ears == [b]


def test_closed_channel_takes_its_peers_and_its_listeners_along() -> None:
    pool, listeners = make()
    of_one, of_all, late = Ears(), Ears(), Ears()
    listeners.add(of_one, channel=ONE)
    listeners.add(of_all)
    a, b, closed = joined("a"), joined("b", TWO), Closed(ONE, "closed")
    for event in (a, b, closed, joined("c")):
        listeners.emit(event)
    listeners.add(late, channel=TWO)
    pool.run()
    assert of_one == [a, closed]
    assert of_all == [a, b, closed, joined("c")]
    assert late == [b]


def test_what_happens_to_a_subscription_is_heard_by_its_own_listener_and_the_nodes() -> None:
    pool, listeners = make()
    own, other, node = Ears(), Ears(), Ears()
    mine, theirs = object(), object()
    listeners.add(own, owner=mine)
    listeners.add(other, channel=ONE, owner=theirs)
    listeners.add(node)
    event = SlowConsumer("", "drop_oldest", 3)
    listeners.emit(event, mine)
    pool.run()
    assert own == node == [event] and other == []


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit])
def test_listener_that_ended_or_raised_or_is_none_disturbs_nobody(
    error: type[BaseException],
) -> None:
    pool, listeners = make()
    ears, gone = Ears(), Ears()

    def fail(event: Event) -> None:
        raise error

    listeners.add(None)()
    listeners.add(fail)
    stop = listeners.add(gone)
    listeners.add(ears)
    stop()
    stop()
    events = [joined(str(number)) for number in range(200)]  # More than one turn hands out.
    for event in events:
        listeners.emit(event)
    pool.run()
    assert ears == events and gone == []
    with pytest.raises(ConfigurationError, match="on_event=5"):
        listeners.add(cast(Any, 5))


PEER = Source("peer", bytes(12), 1)


def publishing(subject: str, channel: str = ONE) -> PublisherMatched:
    return PublisherMatched(channel, PEER, subject, "", True)


def subscribing(subject: str) -> SubscriberMatched:
    return SubscriberMatched(ONE, PEER, subject)


def about(*subjects: str) -> Any:
    """Care for publishers of some subjects, which may change."""
    return lambda match: isinstance(match, PublisherMatched) and match.subject in subjects


def test_match_is_heard_by_whom_it_concerns_and_by_the_node() -> None:
    pool, listeners = make()
    node, mine, others = Ears(), Ears(), Ears()
    listeners.add(node)
    listeners.add(mine, owner="a", concerns=about("/a"))
    listeners.add(others, owner="b", concerns=about("/b"))
    events = [publishing("/a"), subscribing("/a"), PublisherUnmatched(ONE, PEER, "/a")]
    for event in events:
        listeners.emit(event)
    pool.run()
    assert (node, mine, others) == (events, [events[0], events[2]], [])


def test_late_listener_is_told_of_matches_that_go_on() -> None:
    pool, listeners = make()
    for event in (publishing("/a"), publishing("/b"), PublisherUnmatched(ONE, PEER, "/a")):
        listeners.emit(event)
    ears, elsewhere = Ears(), Ears()
    listeners.add(ears)
    listeners.add(elsewhere, channel=TWO)
    pool.run()
    assert (ears, elsewhere) == ([publishing("/b")], [])


def test_match_that_begins_while_a_listener_comes_is_told_once() -> None:
    pool, listeners = make()
    ears = Ears()
    listeners.emit(subscribing("/a"))
    listeners.add(ears, owner="p", concerns=lambda match: match.subject == "/a")
    listeners.refresh("p")
    listeners.emit(SubscriberUnmatched(ONE, PEER, "/a"))
    listeners.emit(SubscriberUnmatched(ONE, PEER, "/a"))
    pool.run()
    assert ears == [subscribing("/a"), SubscriberUnmatched(ONE, PEER, "/a")]


def test_owner_that_changes_what_it_wants_hears_of_what_was_there_already() -> None:
    pool, listeners = make()
    wanted, ears = {"/a"}, Ears()

    def concerns(match: Match) -> bool:
        return match.subject in wanted

    listeners.add(ears, owner="s", concerns=concerns)
    for subject in ("/a", "/b"):
        listeners.emit(publishing(subject))
    wanted |= {"/b"}
    listeners.refresh("s")
    wanted -= {"/a"}
    listeners.refresh("s")
    listeners.emit(PublisherUnmatched(ONE, PEER, "/a"))  # Told already.
    pool.run()
    assert ears == [publishing("/a"), publishing("/b"), PublisherUnmatched(ONE, PEER, "/a")]


def test_matches_of_a_closed_channel_are_forgotten() -> None:
    pool, listeners = make()
    for event in (publishing("/a"), publishing("/a", TWO), Closed(ONE, "closed")):
        listeners.emit(event)
    ears = Ears()
    listeners.add(ears)
    pool.run()
    assert ears == [publishing("/a", TWO)]

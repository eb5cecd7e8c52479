"""Messages of a recording that is played again: marked as such, with their own times."""

import msgspec
import pytest

import hubbub
from hubbub.schema import schema_of
from tests.integration.bus import DEADLINE_S, Place, fresh_place, take

LINKS = [["multicast"], ["local", "multicast"], ["inproc", "multicast"]]
LONG_AGO_NS = 10**18
PLAYED_NS = 2 * 10**18


class Temperature(msgspec.Struct):
    celsius: float


@pytest.fixture
def place() -> Place:
    return fresh_place()


@pytest.mark.parametrize("links", LINKS, ids="+".join)
def test_replayed_message_is_marked_and_keeps_its_time(place: Place, links: list[str]) -> None:
    with place.open("p", links=links) as node, place.open("s", links=links) as other:
        subscription = other.subscribe("/...")
        played = node.publisher("/played", replayed_ns=PLAYED_NS)
        live = node.publisher("/live")
        assert played.wait_for_subscribers(1, DEADLINE_S)
        for number in range(3):
            played.publish(b"%d" % number, time_ns=LONG_AGO_NS + number)
            live.publish(b"live")
        messages = take(subscription, 6)
    replayed = [message for message in messages if message.is_replayed]
    assert [message.payload for message in replayed] == [b"0", b"1", b"2"]
    assert [message.published_ns - LONG_AGO_NS for message in replayed] == [0, 1, 2]
    assert {message.replayed_ns for message in replayed} == {PLAYED_NS}
    assert all(isinstance(message, hubbub.Message) for message in replayed)
    others = [message for message in messages if not message.is_replayed]
    assert [message.replayed_ns for message in others] == [None] * 3


def test_history_of_a_replayed_topic_is_marked_too(place: Place) -> None:
    with place.open("p") as node, place.open("s") as other:
        node.publisher("/a", replayed_ns=PLAYED_NS, history=2).publish(b"1", time_ns=LONG_AGO_NS)
        (message,) = take(other.subscribe("/a", history=True), 1)
        assert (message.replayed_ns, message.published_ns) == (PLAYED_NS, LONG_AGO_NS)


def test_encoded_payloads_are_published_under_their_schema(place: Place) -> None:
    with place.open("p") as node, place.open("s") as other:
        subscription = other.subscribe("/temp", type=Temperature)
        publisher = node.publisher("/temp", type=schema_of(Temperature), replayed_ns=PLAYED_NS)
        assert publisher.wait_for_subscribers(1, DEADLINE_S)
        publisher.publish(msgspec.msgpack.encode(Temperature(21.5)))
        (message,) = take(subscription, 1)
        assert (message.payload, message.is_replayed) == (Temperature(21.5), True)
        (known,) = subscription.publishers()
        assert known.schema == "Temperature"


def test_replayed_and_live_publisher_of_one_subject_must_not_share_a_topic(place: Place) -> None:
    with place.open("p") as node:
        node.publisher("/a", replayed_ns=PLAYED_NS)
        with pytest.raises(hubbub.ConfigurationError, match="must agree"):
            node.publisher("/a")


@pytest.mark.parametrize("wrong", [0, -1, 1 << 64, True, 1.5, "now"])
def test_time_that_is_none_is_refused(place: Place, wrong: int) -> None:
    with place.open("p") as node, pytest.raises(hubbub.ConfigurationError, match="replayed_ns="):
        node.publisher("/a", replayed_ns=wrong)


def test_schema_cannot_decode(place: Place) -> None:
    with place.open("p") as node, pytest.raises(hubbub.ConfigurationError, match="how to decode"):
        node.subscribe("/a", type=hubbub.Schema("Temperature", 7))

"""History: who comes later and asks gets the last messages first, over every link, and once."""

import subprocess
import sys
import threading
from typing import Any

import pytest

import hubbub
from tests.integration.bus import DEADLINE_S, Events, Place, fresh_place, payloads, take, wait_until

LINKS = [["multicast"], ["local", "multicast"], ["local"], ["inproc", "multicast"]]


@pytest.fixture
def place() -> Place:
    return fresh_place()


@pytest.mark.parametrize("links", LINKS, ids="+".join)
def test_latecomer_gets_the_last_messages_as_they_were_then_the_new_ones(
    place: Place, links: list[str]
) -> None:
    with place.open("p", links=links) as node, place.open("s", links=links) as other:
        publisher = node.publisher("/a", history=3)
        for number in range(5):
            assert publisher.publish(b"%d" % number, time_ns=10**18 + number) == 0
        wait_until(lambda: publisher.sequence == 5)
        subscription = other.subscribe("/a", history=True)
        got = take(subscription, 3)
        assert payloads(got) == [b"2", b"3", b"4"]
        assert [message.sequence for message in got] == [3, 4, 5]
        assert [message.published_ns for message in got] == [10**18 + n for n in (2, 3, 4)]
        assert {message.source.name for message in got} == {"p"}
        assert publisher.wait_for_subscribers(1, DEADLINE_S)
        publisher.publish(b"new")
        assert payloads(take(subscription, 1)) == [b"new"]


@pytest.mark.parametrize("links", LINKS, ids="+".join)
def test_who_does_not_ask_gets_what_is_new_also_beside_one_who_does(
    place: Place, links: list[str]
) -> None:
    with place.open("p", links=links) as node, place.open("s", links=links) as other:
        publisher = node.publisher("/a", history=10)
        live = other.subscribe("/a")
        assert publisher.wait_for_subscribers(1, DEADLINE_S)
        for number in range(4):
            publisher.publish(b"%d" % number)
        assert payloads(take(live, 4)) == [b"0", b"1", b"2", b"3"]
        late = other.subscribe("/a", history=2)
        assert payloads(take(late, 2)) == [b"2", b"3"]
        publisher.publish(b"new")
        assert payloads(take(live, 1)) == payloads(take(late, 1)) == [b"new"]
        assert other.flush(DEADLINE_S) and live.pending == late.pending == 0
        if "inproc" not in links:
            assert [one.subject for one in late.publishers()] == ["/a"]


@pytest.mark.parametrize("links", LINKS, ids="+".join)
def test_last_value_of_each_topic_of_a_pattern_and_of_each_publisher(
    place: Place, links: list[str]
) -> None:
    with (
        place.open("p", links=links) as one,
        place.open("q", links=links) as two,
        place.open("s", links=links) as other,
    ):
        for node, subjects in [(one, ("/a/1", "/a/2")), (two, ("/a/1",))]:
            for subject in subjects:
                publisher = node.publisher(subject, history=1)
                publisher.publish(b"old")
                publisher.publish(f"{node.name} {subject}".encode())
                wait_until(lambda publisher=publisher: publisher.sequence == 2)
        got = take(other.subscribe("/a/*", history=True), 3)
        assert sorted(payloads(got)) == [b"p /a/1", b"p /a/2", b"q /a/1"]


def test_history_of_the_node_itself_comes_first_too(place: Place) -> None:
    with place.open("p") as node:
        publisher = node.publisher("/a", history=2)
        for payload in (b"1", b"2", b"3"):
            publisher.publish(payload)
        wait_until(lambda: publisher.sequence == 3)
        late, deaf = node.subscribe("/a", history=True), node.subscribe(
            "/a", history=True, no_local=True
        )  # fmt: skip
        publisher.publish(b"4")
        assert payloads(take(late, 3)) == [b"2", b"3", b"4"]
        assert deaf.received == 0
        early = node.subscribe("/b", history=True)
        node.publisher("/b", history=5).publish(b"first")
        assert payloads(take(early, 1)) == [b"first"]


def test_topic_that_begins_later_in_another_node_of_the_process_comes_from_the_start(
    place: Place,
) -> None:
    links = ["inproc", "multicast"]
    with place.open("p", links=links) as node, place.open("s", links=links) as other:
        subscription = other.subscribe("/...", history=True)
        node.publisher("/a", history=3).publish(b"kept")
        node.publisher("/b").publish(b"not kept")
        assert sorted(payloads(take(subscription, 2))) == [b"kept", b"not kept"]


def test_lazy_payload_is_made_for_the_history_though_nobody_listens(place: Place) -> None:
    with place.open("p") as node, place.open("s") as other:
        kept, plain = node.publisher("/a", history=1), node.publisher("/b")
        wait_until(lambda: not node.channels[0].driver.core.outgoing.reliable.is_held)
        made: list[str] = []
        for name, publisher in {"kept": kept, "plain": plain}.items():
            assert publisher.publish(lambda name=name: made.append(name) or b"made") == 0
        assert made == ["kept"]
        assert payloads(take(other.subscribe("/a", history=True), 1)) == [b"made"]


@pytest.mark.parametrize("links", LINKS, ids="+".join)
def test_latecomers_in_the_midst_of_a_stream_get_a_run_without_holes(
    place: Place, links: list[str]
) -> None:
    count, kept = 3000, 200
    payload = bytes(700)
    with place.open("p", links=links) as node:
        publisher = node.publisher("/a", history=kept)

        def publish() -> None:
            for number in range(count):
                publisher.publish(b"%d " % number + payload)

        thread = threading.Thread(target=publish)
        thread.start()
        others = [place.open(f"s{n}", links=links) for n in range(3)]
        late = [other.subscribe("/a", history=True, queue=2 * count) for other in others]
        late += [others[0].subscribe("/a", history=7, queue=2 * count)]
        thread.join()
        assert node.flush(DEADLINE_S)
        for subscription in late:
            got = take(subscription, 1)
            got += take(subscription, count - got[0].sequence)
            sequences = [message.sequence for message in got]
            assert sequences == list(range(sequences[0], count + 1))
            assert all(bytes(one.payload).startswith(b"%d " % (one.sequence - 1)) for one in got)
        for other in others:
            other.close()


def test_large_messages_are_kept_and_served(place: Place) -> None:
    with place.open("p") as node, place.open("s") as other:
        publisher = node.publisher("/a", history=2)
        for number in range(3):
            publisher.publish(bytes([number]) * 300_000)
        wait_until(lambda: publisher.sequence == 3)
        got = take(other.subscribe("/a", history=True), 2)
        assert [(message.sequence, bytes(message.payload[:1])) for message in got] == [
            (2, b"\1"), (3, b"\2"),
        ]  # fmt: skip
        assert {len(message.payload) for message in got} == {300_000}


def test_history_lost_on_the_way_is_repaired(place: Place) -> None:
    faults = hubbub.Faults(seed=3, loss=0.2)
    with place.open("p", faults=faults) as node, place.open("s") as other:
        publisher = node.publisher("/a", history=500)
        for number in range(500):
            publisher.publish(b"%d" % number + bytes(600))
        wait_until(lambda: publisher.sequence == 500)
        heard = Events()
        other.on_event(heard)
        got = take(other.subscribe("/a", history=True), 500)
        assert [message.sequence for message in got] == list(range(1, 501))
        assert heard.of(hubbub.GapAbandoned) == []


def test_subscription_with_history_ends_like_any_other(place: Place) -> None:
    with place.open("p") as node, place.open("s") as other:
        publisher = node.publisher("/a", history=1)
        publisher.publish(b"1")
        wait_until(lambda: publisher.sequence == 1)
        for _ in range(3):
            with other.subscribe("/a", history=True) as subscription:
                assert payloads(take(subscription, 1)) == [b"1"]
            wait_until(lambda: not publisher.is_connected)
        typed = other.subscribe("/a", history=True, callback=lambda message: None)
        typed.close()


def test_command_prints_what_was_kept_before_what_is_new(place: Place) -> None:
    command = [sys.executable, "-m", "hubbub", "sub", "/a", "--history", "-n", "2", "--raw"]
    with hubbub.open("p", domain=place.domain, interface="127.0.0.1") as node:
        publisher = node.publisher("/a", history=1)
        publisher.publish(b"kept ")
        wait_until(lambda: publisher.sequence == 1)
        with subprocess.Popen(
            [*command, "--domain", place.domain, "--interface", "127.0.0.1"], stdout=subprocess.PIPE
        ) as process:
            assert publisher.wait_for_subscribers(1, DEADLINE_S)
            publisher.publish(b"new")
            assert process.communicate(timeout=DEADLINE_S)[0] == b"kept new"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"history": -1}, "history=-1 is not between 0 and 65536"),
        ({"history": 65_537}, "history=65537 is not between 0 and 65536"),
        ({"history": True}, "history=True is not a whole number"),
        ({"history": 1, "reliable": False}, "history=1 needs reliable=True"),
    ],
)
def test_history_that_cannot_be_kept_is_refused(
    place: Place, options: dict[str, Any], text: str
) -> None:
    with place.open("p") as node, pytest.raises(hubbub.ConfigurationError, match=text):
        node.publisher("/a", **options)


@pytest.mark.parametrize("history", [0, -1, 65_537, "all", 1.5])
def test_history_that_cannot_be_asked_for_is_refused(place: Place, history: Any) -> None:
    with place.open("s") as node, pytest.raises(hubbub.ConfigurationError, match="history="):
        node.subscribe("/a", history=history)


def test_publishers_of_a_subject_agree_on_its_history(place: Place) -> None:
    with place.open("p") as node:
        node.publisher("/a", history=2)
        with pytest.raises(hubbub.ConfigurationError, match=r"history=2, .*all publishers"):
            node.publisher("/a", history=3)
        assert node.publisher("/a", history=2).publish(b"x") == 0


def test_history_ends_with_the_last_publisher_of_its_subject(place: Place) -> None:
    with place.open("p") as node, place.open("s") as other:
        first, second = (node.publisher("/a", history=2) for _ in range(2))
        first.publish(b"1")
        wait_until(lambda: first.sequence == 1)
        first.close()
        assert payloads(take(other.subscribe("/a", history=True), 1)) == [b"1"]
        second.close()
        third = node.publisher("/a", history=5)
        late = other.subscribe("/a", history=True)
        assert third.wait_for_subscribers(1, DEADLINE_S)
        third.publish(b"2")
        assert [message.sequence for message in take(late, 1)] == [2]

"""A recording is played again: in order, in time, marked, and under the names asked for."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import hubbub
from hubbub.limits import SECOND
from hubbub.recorder.player import AS_FAST_AS_POSSIBLE, Player, Recorded, Renaming
from hubbub.store import Store
from hubbub.store.convert import convert_segment
from hubbub.store.journal import Topic
from tests.integration.bus import DEADLINE_S, Place, fresh_place, take, wait_until
from tests.unit.store.recording import run, write_segment
from tests.unit.store.test_reading import RATE, START, at, make_store, values

MESSAGES = 18


@pytest.fixture
def place() -> Place:
    return fresh_place()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a recording of 3 s: converted, closed and still open."""
    path = make_store(tmp_path / "recording")
    convert_segment(path, write_segment(path, values(0), 0))
    write_segment(path, values(1), 1)
    write_segment(path, values(2), 2, is_closed=False, zeros=4096)
    return path


def test_messages_come_again_in_order_marked_and_with_their_times(
    place: Place, store: Path
) -> None:
    with place.open("player") as node, place.open("s") as other:
        subscription = other.subscribe("/...")
        player = Player(node, store, rate=AS_FAST_AS_POSSIBLE)
        plan = player.plan()
        assert (plan.messages, plan.span_ns) == (MESSAGES, 2.5 * SECOND)
        wait_until(lambda: all(one.receivers for one in player._publishers.values()))
        played = player.play(plan)
        messages = take(subscription, MESSAGES)
    assert (played.messages, played.unheard, played.receivers) == (MESSAGES, 0, 1)
    assert all(message.is_replayed for message in messages)
    assert {message.replayed_ns for message in messages} == {player.replayed_ns}
    for subject in ("/plant/temp", "/plant/rate"):
        texts = [one.payload[:8] for one in messages if one.subject == subject]
        assert texts == sorted(texts) and len(texts) == MESSAGES // 2
    for message in messages:
        assert message.published_ns == 1000 + int(message.payload[:8])


def test_type_is_declared_as_it_was(place: Place, store: Path) -> None:
    with place.open("player") as node, place.open("s") as other:
        subscription = other.subscribe("/plant/...")
        Player(node, store).plan()
        wait_until(lambda: len(subscription.publishers()) == 2)
        assert {one.subject: one.schema for one in subscription.publishers()} == {
            "/plant/temp": "",
            "/plant/rate": "Rate",
        }


@pytest.mark.parametrize("rate", [5.0, 20.0])
def test_no_message_is_early_and_the_schedule_does_not_drift(
    place: Place, store: Path, rate: float
) -> None:
    times: list[int] = []

    def note_time(_: hubbub.Message) -> None:
        times.append(time.monotonic_ns())

    with place.open("player") as node:
        node.subscribe("/...", note_time, inline=True)
        player = Player(node, store, rate=rate)
        plan = player.plan()
        begin_ns = time.monotonic_ns()
        player.play(plan)
        wait_until(lambda: len(times) == MESSAGES)
    due = [second / rate for number in range(3) for second in [number] * 3 + [number + 0.5] * 3]
    late = [(got - begin_ns) / SECOND - want for got, want in zip(times, due, strict=True)]
    assert min(late) >= 0, late


def test_only_what_was_asked_for_is_played_under_the_name_that_was_asked_for(
    place: Place, store: Path
) -> None:
    with place.open("player") as node:
        subscription = node.subscribe("/...")
        player = Player(
            node, store, rate=AS_FAST_AS_POSSIBLE, subjects="/plant/temp",
            start=START + SECOND, end=START + 2 * SECOND, remap={"/plant/...": "/test/..."},
        )  # fmt: skip
        assert player.play().messages == 3
        messages = take(subscription, 3)
        assert {message.subject for message in messages} == {"/test/temp"}
        assert [int(message.payload[:8]) for message in messages] == [6, 7, 8]


def test_subject_of_two_types_is_played_by_two_nodes(place: Place, tmp_path: Path) -> None:
    other_type = RATE._replace(schema_name="Speed", schema_hash=6)
    make_store(tmp_path)
    write_segment(tmp_path, [at(0, run(0, topic=RATE)), at(0, run(3, topic=other_type))])
    with (
        place.open("player") as node,
        pytest.raises(hubbub.ConfigurationError, match="needs another node"),
    ):
        Player(node, tmp_path).plan()
    with place.open("player") as node, place.open("s") as other:
        subscription = other.subscribe("/...")
        player = Player(
            node, tmp_path, rate=AS_FAST_AS_POSSIBLE, open_another=lambda: place.open("player-2")
        )
        plan = player.plan()
        wait_until(lambda: len(subscription.publishers()) == 2)
        assert {one.schema for one in subscription.publishers()} == {"Rate", "Speed"}
        wait_until(lambda: all(one.receivers for one in player._publishers.values()))
        player.play(plan)
        assert len(take(subscription, 6)) == 6
        player.close()


def test_looping_goes_on_until_it_is_stopped(place: Place, store: Path) -> None:
    with place.open("player") as node:
        subscription = node.subscribe("/...", queue=1_000_000)
        player = Player(node, store, rate=AS_FAST_AS_POSSIBLE)
        thread = threading.Thread(target=lambda: player.play(is_looping=True))
        thread.start()
        texts = [int(message.payload[:8]) for message in take(subscription, 3 * MESSAGES)]
        player.stop()
        thread.join(DEADLINE_S)
        assert not thread.is_alive() and player.played.rounds >= 2
        assert texts == [*range(MESSAGES)] * 3


def test_stop_ends_a_wait(place: Place, tmp_path: Path) -> None:
    make_store(tmp_path)
    write_segment(tmp_path, [at(0, run(0)), at(3600, run(3))])
    with place.open("player") as node:
        subscription = node.subscribe("/...")
        player = Player(node, tmp_path)
        thread = threading.Thread(target=player.play)
        thread.start()
        take(subscription, 3)
        player.stop()
        thread.join(DEADLINE_S)
        assert not thread.is_alive() and player.played.messages == 3


def test_stepping_asks_before_each_message(place: Place, store: Path) -> None:
    asked: list[Recorded] = []

    def ask(message: Recorded) -> bool:
        asked.append(message)
        return len(asked) < 5

    with place.open("player") as node:
        played = Player(node, store).play(before=ask)
    assert played.messages == 4 and [one.offset for one in asked] == [0, 1, 2, 3, 4]
    assert asked[3].schema.name == "Rate"


def test_what_is_recorded_meanwhile_is_not_played(place: Place, store: Path) -> None:
    with place.open("player") as node:
        player = Player(node, store, rate=AS_FAST_AS_POSSIBLE)
        plan = player.plan()
        write_segment(store, values(2), 2)
        write_segment(store, values(3), 3, is_closed=False)
        assert player.play(plan).messages == MESSAGES


def test_recording_of_a_replay_says_that_it_is_one(
    place: Place, store: Path, tmp_path: Path
) -> None:
    with (
        place.open("player") as node,
        place.open("recorder") as other,
        hubbub.Recorder(other, "/...", tmp_path / "copy", convert=False) as recorder,
    ):
        player = Player(node, store, rate=AS_FAST_AS_POSSIBLE)
        plan = player.plan()
        wait_until(lambda: all(one.receivers for one in player._publishers.values()))
        player.play(plan)
        wait_until(lambda: recorder.acknowledged == MESSAGES)
    rows = [row for batch in Store(tmp_path / "copy").messages() for row in batch.to_pylist()]
    assert {row["replayed_ns"] for row in rows} == {player.replayed_ns}
    originals = [row for batch in Store(store).messages() for row in batch.to_pylist()]
    kept = ("payload", "subject", "published_ns", "schema", "schema_hash")
    assert sorted([row[name] for name in kept] for row in rows) == sorted(
        [row[name] for name in kept] for row in originals
    )


def test_rate_that_is_none_is_refused(place: Place, store: Path) -> None:
    with place.open("player") as node, pytest.raises(hubbub.ConfigurationError, match="rate=0"):
        Player(node, store, rate=0)


def test_names_are_changed_exactly_or_below() -> None:
    rename = Renaming({"/a/b": "/x", "/plant/...": "/test/deep/..."})
    assert rename("/a/b") == "/x" and rename("/a/b/c") == "/a/b/c"
    assert rename("/plant/line1/temp") == "/test/deep/line1/temp" and rename("/plant") == "/plant"


@pytest.mark.parametrize("names", [{"/a/...": "/b"}, {"/a": "/b/..."}, {"a": "/b"}, {"/a": "/*"}])
def test_names_that_cannot_be_changed_are_refused(names: dict[str, str]) -> None:
    with pytest.raises(hubbub.HubbubError):
        Renaming(names)


def test_topic_of_an_old_recording_without_hash_is_plain(place: Place, tmp_path: Path) -> None:
    make_store(tmp_path)
    nameless = Topic("/a", "p", bytes(12), 1, "Rate", 0)
    write_segment(tmp_path, [at(0, run(0, topic=nameless))])
    with place.open("player") as node:
        assert Player(node, tmp_path, rate=AS_FAST_AS_POSSIBLE).play().messages == 3


@pytest.mark.parametrize("rate", [0, -1, float("nan"), "fast", None, True])
def test_rate_that_cannot_be_is_refused(place: Place, tmp_path: Path, rate: Any) -> None:
    with place.open("n") as node, pytest.raises(hubbub.ConfigurationError, match="number above 0"):
        Player(node, tmp_path, rate=rate)

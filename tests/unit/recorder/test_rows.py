"""Events, peers and losses as rows of their tables."""

import json

from hubbub.awareness import RemotePeer, RemotePublisher
from hubbub.events import CallbackFailed, GapAbandoned, PeerJoined, SlowConsumer
from hubbub.message import Source
from hubbub.recorder import rows
from hubbub.runtime.tally import Loss
from hubbub.store.schema import TABLES

LIDAR = Source("lidar", bytes(11) + b"\x01", 7)
CAMERA = Source("camera", bytes(11) + b"\x02", 8)


def fits(table: str, row: rows.Values) -> bool:
    """Tell whether a row has just the columns of its table that the recorder fills."""
    filled_by_conversion = {"recorder", "number", "time"}
    return row.keys() == set(TABLES[table].names) - filled_by_conversion


def test_event_is_a_row_about_the_node_that_it_names() -> None:
    [row] = rows.event_rows(PeerJoined("c", LIDAR, "host", 5, "1.2.3.4"), 99)
    assert fits("events", row)
    assert (row["kind"], row["time_ns"]) == ("PeerJoined", 99)
    assert (row["node_name"], row["node_id"], row["incarnation"]) == ("lidar", "00" * 11 + "01", 7)
    assert json.loads(row["detail"])["peer"] == {
        "name": "lidar", "id": "00" * 11 + "01", "incarnation": 7,
    }  # fmt: skip


def test_node_that_was_there_before_is_told_from_one_that_joined() -> None:
    event = PeerJoined("c", LIDAR, "host", 5, "1.2.3.4", 17)
    [row] = rows.event_rows(event, 99, was_there=True)
    assert json.loads(row["detail"])["was_there"] is True
    [row] = rows.event_rows(event, 99)
    assert "was_there" not in json.loads(row["detail"])


def test_gap_has_its_messages_and_one_of_frames_has_none() -> None:
    [row] = rows.event_rows(GapAbandoned("c", LIDAR, "/a", 3, 7, "given_up"), 1)
    assert (row["subject"], row["first_sequence"], row["last_sequence"]) == ("/a", 3, 7)
    assert row["count"] == 5
    [row] = rows.event_rows(GapAbandoned("c", LIDAR, None, 3, 7, "publisher_gone"), 1)
    assert (row["first_sequence"], row["last_sequence"], row["count"]) == (None, None, None)


def test_slow_consumer_is_a_row_for_each_range() -> None:
    ranges = (("/a", LIDAR, 1, 3), ("/b", CAMERA, 5, 5))
    found = list(rows.event_rows(SlowConsumer("c", "drop_oldest", 4, "/...", ranges), 1))
    assert [(row["subject"], row["node_name"], row["count"]) for row in found] == [
        ("/a", "lidar", 3), ("/b", "camera", 1),
    ]  # fmt: skip
    [row] = rows.event_rows(SlowConsumer("c", "left_behind", 9, peer=CAMERA), 1)
    assert (row["node_name"], row["count"]) == ("camera", 9)


def test_event_with_an_exception_can_be_written() -> None:
    [row] = rows.event_rows(CallbackFailed("c", "/a", "/a", ValueError("x")), 1)
    assert json.loads(row["detail"])["error"] == "ValueError('x')"


def test_loss_is_told_by_range_and_what_is_in_none_by_number() -> None:
    found = list(rows.loss_rows(Loss(100, (("/a", LIDAR, 1, 10), ("/b", LIDAR, 5, 5))), 9))
    assert all(fits("events", row) for row in found)
    assert [row["kind"] for row in found] == ["RecorderLost"] * 3
    assert [row["count"] for row in found] == [10, 1, 89]
    assert [row["subject"] for row in found] == ["/a", "/b", None]


def peer(patterns: tuple[str, ...], subjects: tuple[str, ...], link: str = "local") -> RemotePeer:
    place = {
        "node": LIDAR, "host": "h", "pid": 3, "link": link, "channel": "c", "since_ns": 1,
        "heard_ms_ago": 0.0,
    }  # fmt: skip
    published = tuple(
        RemotePublisher(**place, subject=one, schema="T", is_reliable=True, sequence=1)  # type: ignore[arg-type]
        for one in subjects
    )
    return RemotePeer(**place, patterns=patterns, publications=published)  # type: ignore[arg-type]


def test_announcements_are_told_when_they_change() -> None:
    before = rows.announcements_of((peer(("/w/*",), ("/a", "/b")),))
    told = list(rows.announcement_rows({}, before, 5))
    assert all(fits("announcements", row) for row in told)
    assert [(row["role"], row["subject"], row["schema"], row["is_present"]) for row in told] == [
        ("subscriber", "/w/*", None, True),
        ("publisher", "/a", "T", True),
        ("publisher", "/b", "T", True),
    ]
    assert list(rows.announcement_rows(before, before, 6)) == []
    after = rows.announcements_of((peer((), ("/a", "/c")),))
    told = list(rows.announcement_rows(before, after, 7))
    assert [(row["subject"], row["is_present"]) for row in told] == [
        ("/c", True), ("/w/*", False), ("/b", False),
    ]  # fmt: skip
    moved = rows.announcements_of((peer((), ("/a", "/c"), "tcp"),))
    assert [row["link"] for row in rows.announcement_rows(after, moved, 8)] == ["tcp", "tcp"]


def test_counter_has_the_columns_of_its_table() -> None:
    assert fits("counters", rows.counter_row(2, 1, LIDAR, "local", "messages", 5))
    assert fits("counters", rows.counter_row(2, 1, None, None, "gaps", 5))

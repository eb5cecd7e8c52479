"""What the report says in plain words, and what it must not say."""

from dataclasses import replace
from typing import Any

from hubbub.limits import REPORT_FINDINGS_MAX
from hubbub.report.building import build
from hubbub.report.findings import Finding, Level, find, summarise
from tests.unit.report.literal import (
    DASH,
    GPS,
    LIDAR,
    counted,
    event,
    gap,
    health,
    morning,
    slots,
    tables,
)


def findings_of(**rows: Any) -> list[Finding]:
    return list(find(build(tables(**rows))))


def texts(found: list[Finding], level: Level | None = None) -> list[str]:
    return [one.text for one in found if level in (None, one.level)]


def test_summary_says_how_much_there_was() -> None:
    assert (
        summarise(build(morning()))
        == "3 nodes, 3 subjects and 25 messages (2.5 kB) in at most 30 s."
    )


def test_everything_that_happened_is_named_the_worst_first() -> None:
    found = find(build(morning()))
    assert [one.level for one in found] == sorted(one.level for one in found)
    assert texts(list(found)) == [
        (
            "14 messages lost on /points by publisher lidar#aa0000 between 08:00:12.000 and"
            " 08:00:13.000, reported by the bus as GapAbandoned."
        ),
        "Publisher lidar#aa0000 was killed or crashed at 08:00:21.000.",
        "lidar#aa0000 kept the period of 10 ms of /speed in 99 % of 1,000 slots: 4 missed, 6 late.",
        "Consumer dash#bb0000 of /speed each 20 ms got nothing in 3 of 500 slots.",
        "Consumer dash#bb0000 was too slow at 08:00:15.000.",
        "1 row put aside (size_out_of_range), on /fix, at 08:00:00.000.",
        "116 frames came twice; the bus dropped the copies.",
        "2 messages came twice; each was counted once.",
        "3 frames got lost on the way and came by a repair.",
        (
            "Half of all messages were on their way for 201 µs or less, 99 % for 400 µs or less;"
            " the slowest took 400 µs."
        ),
        "Service news changed hands once.",
        "1 window at the end may still grow.",
        "The bus counted the same: 14 messages lost.",
        "The recorder lost nothing.",
    ]


def test_bus_that_counted_otherwise_is_told() -> None:
    found = findings_of(gaps=[gap("/a", 1, 5)], bus_counters=[counted("messages_lost", 7)])
    said = "The bus counted 7 messages lost, the recording lacks 5."
    assert said in texts(found, Level.NOTE)


def test_samples_that_are_lost_are_no_broken_promise() -> None:
    lost = gap("/speed", 7, 9, reported=False, reported_as=None, lost_by="unknown")
    found = findings_of(gaps=[lost], period_compliance=[slots("/speed", slots=9, met=9)])
    (said,) = [text for text in texts(found, Level.WARNING) if text.startswith("3 samples lost")]
    assert "on /speed by producer lidar#aa0000 between 08:00:12.000 and 08:00:13.000" in said
    assert not any("/speed" in text for text in texts(found, Level.BAD))


def test_every_finding_but_the_unfinished_leads_somewhere() -> None:
    for one in find(build(morning())):
        assert one.place, one.text


def test_quiet_recording_says_that_nothing_is_missing() -> None:
    found = findings_of(
        topic_health=[health(0, "/a")],
        period_compliance=[slots("/a", slots=5, met=5, missed=0, late=0)],
    )
    assert texts(found, Level.GOOD) == [
        "The recorder lost nothing.",
        "No message is missing.",
        "Every period was kept: 5 slots.",
    ]
    assert texts(found, Level.BAD) == []


def test_loss_that_nobody_reported_is_not_put_down_to_the_bus() -> None:
    unreported = gap("/a", 1, 2, reported=False, reported_as=None, lost_by="unknown")
    found = findings_of(topic_health=[health(0, "/a", lost=2)], gaps=[unreported])
    assert texts(found, Level.BAD)[0].endswith("reported by nobody (lost by: unknown).")
    assert "best effort loses without a report; reliable topics must not" in found[0].evidence
    assert "The recorder lost nothing." not in texts(found)


def test_loss_of_the_recorder_is_told_apart_from_that_of_the_bus() -> None:
    lost = gap("/a", 1, 5, reported_as="RecorderLost", lost_by="recorder")
    found = findings_of(topic_health=[health(0, "/a", lost=5)], gaps=[lost])
    assert texts(found, Level.BAD) == [
        (
            "The recorder itself lost 5 messages between 08:00:12.000 and 08:00:13.000;"
            " the bus had them."
        )
    ]
    assert found[0].evidence == ("5 of /a from lidar#aa0000 (RecorderLost)",)


def test_tables_that_contradict_each_other_are_not_hidden() -> None:
    found = findings_of(topic_health=[health(0, "/a", lost=3)], gaps=[gap("/a", 1, 2)])
    assert "The tables do not agree: 2 lost by gaps, 3 by topic_health." in texts(found)


def test_nothing_is_said_of_a_table_that_is_missing() -> None:
    found = find(build(tables(missing=("gaps",), topic_health=[health(0, "/a", lost=3)])))
    said = texts(list(found))
    assert "Tables that are not there: gaps." in said
    assert not {"The recorder lost nothing.", "No message is missing."} & set(said)
    assert not any("do not agree" in one for one in said)


def test_node_that_left_or_started_again_is_no_crash() -> None:
    rows = [
        event(1, "PeerLeft", DASH, reason="closed"),
        event(2, "PeerLeft", GPS, reason="restarted"),
        event(3, "PeerLeft", LIDAR, reason="timeout"),
    ]
    found = findings_of(node_timeline=rows)
    assert texts(found, Level.BAD) == [
        "Node lidar#aa0000 fell silent and was given up at 08:00:03.000."
    ]
    assert texts(found, Level.WARNING) == [
        "Node gps#cc0000 started again without saying goodbye at 08:00:02.000."
    ]


def test_many_of_one_kind_are_said_together() -> None:
    count = REPORT_FINDINGS_MAX + 3
    gaps = [gap(f"/t{n}", 1, 100 - n) for n in range(count)]
    found = findings_of(gaps=gaps, topic_health=[health(0, "/a", lost=sum(range(90, 101)))])
    lost = [one for one in texts(found, Level.BAD) if "lost" in one]
    assert len(lost) == REPORT_FINDINGS_MAX + 1
    assert lost[0].startswith("100 messages lost on /t0 ")
    assert lost[-1] == "273 further messages lost on 3 further topics."


def test_late_messages_are_told_until_they_are_counted() -> None:
    found = find(replace(build(morning()), late=7))
    assert "7 late messages are not counted yet." in texts(list(found))


def test_recording_without_messages_is_said_to_be_one() -> None:
    figures = build(tables())
    assert summarise(figures) == "No messages."
    assert find(figures) == ()


def test_recorder_that_did_not_run_lost_nothing_and_that_is_said() -> None:
    paused = gap("/points", 5, 33, reported_as="RecorderStarted", lost_by="recorder")
    found = findings_of(topic_health=[health(0, "/points")], gaps=[paused])
    assert texts(found, Level.BAD) == []
    [text] = texts(found, Level.WARNING)
    assert text.startswith("The recorder did not run for a while between 08:00:12.000 and 08:00:13")
    assert text.endswith(": 29 messages not recorded.")
    said = " ".join(texts(found))
    assert "do not agree" not in said and "lost nothing" not in said and "missing" not in said


def test_slowest_topic_is_one_of_the_users_where_there_is_any() -> None:
    own = health(0, "/hubbub/events/lidar", latencies_us=[90_000] * 10)
    slow = health(0, "/points", latencies_us=[400] * 10)
    for rows, slowest in (([own, slow], "/points"), ([own], "/hubbub/events/lidar")):
        (found,) = [one for one in findings_of(topic_health=rows) if one.place == "latency"]
        assert found.evidence[0].startswith(f"slowest: {slowest} ")

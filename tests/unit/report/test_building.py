"""From literal tables to figures: what is added up, merged and cut, and what is left alone."""

import pytest

from hubbub.limits import (
    REPORT_ROWS_MAX,
    REPORT_SERIES_MAX,
    REPORT_TIMES_MAX,
    REPORT_TOPICS_MAX,
)
from hubbub.pipeline.histogram import bounds_ns, bucket_of
from hubbub.report.building import build
from hubbub.report.figures import Cell, Figures, Loss, Stay
from hubbub.report.findings import find
from hubbub.report.histograms import read_off
from hubbub.report.listings import list_tables
from tests.unit.report.literal import (
    BEGIN_US,
    DASH,
    GPS,
    LIDAR,
    SECOND_US,
    WINDOW_US,
    Row,
    event,
    gap,
    health,
    morning,
    sent,
    slots,
    tables,
)


@pytest.fixture(scope="module")
def figures() -> Figures:
    return build(morning())


def test_everything_is_added_up(figures: Figures) -> None:
    assert (figures.nodes, figures.subjects, figures.messages) == (3, 3, 25)
    assert (figures.bytes, figures.lost, figures.duplicates) == (2500, 14, 2)
    assert figures.open_windows == 1


LISTENING = "/hubbub/events/*"
BEGUN = event(0, "SubscriptionBegun", DASH, subject=LISTENING)
ENDED = event(25, "SubscriptionEnded", DASH, subject=LISTENING)
ANOTHER = event(26, "SubscriptionBegun", GPS, subject=LISTENING, link="local")


@pytest.mark.parametrize(
    ("timeline", "open_windows"),
    [
        ([BEGUN], 1),
        ([BEGUN, ENDED], 0),
        ([BEGUN, ENDED, ANOTHER], 0),  # A recorder elsewhere writes nothing here.
        ([BEGUN, ENDED, event(27, "SubscriptionBegun", DASH, subject=LISTENING)], 1),
        ([ENDED | {"detail": None}], 1),
    ],
)
def test_windows_of_a_recording_that_has_ended_grow_no_more(
    timeline: list[Row], open_windows: int
) -> None:
    assert build(morning(node_timeline=timeline)).open_windows == open_windows


def test_repairs_are_counted_once_a_publisher_and_window(figures: Figures) -> None:
    assert figures.repairs == {"lidar#aa0000": 3, "gps#cc0000": 0}


def test_time_is_cut_into_the_windows_of_the_table(figures: Figures) -> None:
    clock = figures.clock
    assert (clock.first_us, clock.last_us) == (BEGIN_US, BEGIN_US + 3 * WINDOW_US)
    assert (clock.columns, clock.column_us) == (3, WINDOW_US)


def test_columns_at_the_ends_are_cut_to_what_was_recorded() -> None:
    span_us = (BEGIN_US + 7 * SECOND_US, BEGIN_US + WINDOW_US + 5 * SECOND_US)
    rows = [health(0, "/fix", messages=30), health(1, "/fix", messages=50)]
    found = build(tables(topic_health=rows, span_us=span_us))
    clock = found.clock
    assert (clock.first_us, clock.last_us, clock.columns) == (*span_us, 2)
    assert [clock.length_us(one) for one in range(2)] == [3 * SECOND_US, 5 * SECOND_US]
    assert found.message_rates[0].values == (10.0, 10.0)


def test_a_column_of_a_moment_is_no_rate_of_thousands() -> None:
    span_us = (BEGIN_US, BEGIN_US + WINDOW_US + 1)
    rows = [health(0, "/fix", messages=100), health(1, "/fix", messages=1)]
    found = build(tables(topic_health=rows, span_us=span_us))
    assert found.message_rates[0].values == (10.0, 1.0)


def test_windows_without_messages_at_the_ends_stay_whole() -> None:
    span_us = (BEGIN_US + WINDOW_US, BEGIN_US + WINDOW_US + SECOND_US)
    rows = [health(at, "/fix", messages=at % 2, lost=1) for at in range(3)]
    clock = build(tables(topic_health=rows, span_us=span_us)).clock
    assert (clock.first_us, clock.last_us) == (BEGIN_US, BEGIN_US + 3 * WINDOW_US)


def test_topic_that_lost_most_comes_first_with_its_cells(figures: Figures) -> None:
    worst = figures.topics[0]
    assert (worst.subject, worst.source, worst.messages, worst.lost) == (
        *("/points", "lidar#aa0000", 14, 14),
    )
    assert worst.cells == (
        Cell(messages=4, bytes=400),
        Cell(messages=10, bytes=1000, lost=14, repairs=3),
        Cell(),
    )


def test_latencies_of_several_windows_are_those_of_all_their_messages(figures: Figures) -> None:
    # /points: 100, 200, 300, 400, and ten times 200.
    latency = figures.topics[0].latency
    assert latency.p50_us == bounds_ns(bucket_of(200_000))[1] / 1000
    assert latency.p99_us == latency.max_us == 400


def test_latencies_of_a_column_are_of_all_topics_in_it(figures: Figures) -> None:
    assert figures.latencies[0].max_us == 400
    assert figures.latencies[1].max_us == 200
    assert figures.latency.max_us == 400


def test_percentile_never_exceeds_the_slowest_message() -> None:
    latency = read_off({bucket_of(1_000_000): 1}, 1000.0)
    assert latency.p50_us == latency.p99_us == 1000.0
    assert latency.deviation_us == 0


def test_histogram_without_entries_has_no_percentiles() -> None:
    assert read_off({}, None).p50_us is None


def test_rates_are_a_second_and_by_subject(figures: Figures) -> None:
    rates = {one.label: one.values for one in figures.message_rates}
    assert rates == {"/points": (0.4, 1.0, 0), "/status": (0, 0.1, 0), "/fix": (0, 0, 1.0)}
    assert {one.label: one.values for one in figures.byte_rates}["/points"] == (40, 100, 0)


def test_subjects_beyond_the_colours_are_drawn_together() -> None:
    count = REPORT_SERIES_MAX + 3
    rows = [health(0, f"/s{n}", latencies_us=[1] * (20 - n)) for n in range(count)]
    rates = build(tables(topic_health=rows)).message_rates
    assert [one.label for one in rates][:2] == ["/s0", "/s1"]
    assert len(rates) == REPORT_SERIES_MAX + 1
    assert (rates[-1].label, rates[-1].is_rest) == ("3 other subjects", True)
    assert sum(one.values[0] for one in rates) == sum(20 - n for n in range(count)) / 10


def test_long_time_is_merged_into_columns_and_nothing_is_lost_by_it() -> None:
    count = 3 * REPORT_TIMES_MAX + 1
    found = build(tables(topic_health=[health(n, "/a", lost=1) for n in range(count)]))
    assert found.clock.columns <= REPORT_TIMES_MAX
    assert found.clock.column_us == 4 * WINDOW_US
    assert sum(cell.messages for cell in found.topics[0].cells) == 10 * count
    assert sum(cell.lost for cell in found.topics[0].cells) == count
    # The last column has one window instead of four, and is not drawn as a decline.
    assert set(found.message_rates[0].values) == {1.0}


def test_topics_beyond_a_picture_are_listed_and_beyond_a_table_counted() -> None:
    count = REPORT_ROWS_MAX + 5
    found = build(tables(topic_health=[health(0, f"/t{n}") for n in range(count)]))
    assert (len(found.topics), found.topics_in_all) == (REPORT_ROWS_MAX, count)
    assert sum(bool(one.cells) for one in found.topics) == REPORT_TOPICS_MAX
    assert found.messages == 10 * count


def test_subject_of_two_publishers_is_two_topics_that_say_so() -> None:
    found = build(tables(topic_health=[health(0, "/a"), health(0, "/a", GPS)]))
    assert [one.label for one in found.topics] == ["/a · lidar#aa0000", "/a · gps#cc0000"]
    assert found.subjects == 1


def test_losses_are_added_up_by_topic_and_by_who_reported_them() -> None:
    rows = [
        gap("/a", 1, 4),
        gap("/a", 9, 9, after=BEGIN_US, before=None),
        gap("/a", 20, 21, reported=False, reported_as=None, lost_by="unknown"),
        gap("/b", 1, 2, reported_as="RecorderLost", lost_by="recorder"),
    ]
    first_us, last_us = BEGIN_US + 12 * SECOND_US, BEGIN_US + 13 * SECOND_US
    assert build(tables(gaps=rows)).losses == (
        Loss("/a", "lidar#aa0000", "bus", "GapAbandoned", 5, 2, BEGIN_US, last_us),
        Loss("/a", "lidar#aa0000", "unknown", None, 2, 1, first_us, last_us),
        Loss("/b", "lidar#aa0000", "recorder", "RecorderLost", 2, 1, first_us, last_us),
    )


def test_life_of_a_node_is_its_stays_and_what_happened_in_them() -> None:
    rows = [
        event(5, "PeerLeft", GPS, reason="timeout"),
        event(1, "PeerJoined", LIDAR),
        event(2, "Starved", LIDAR, late_ms=30),
        event(3, "Starved", LIDAR, late_ms=31),
        event(4, "PeerLeft", LIDAR, reason="died"),
        event(6, "PeerJoined", LIDAR),
        event(7, "PublishBegun", LIDAR),
        event(7, "PublishBegun", DASH),
    ]
    found = build(tables(topic_health=[health(0, "/a")], node_timeline=rows))
    lidar, gps = found.lanes
    assert lidar.stays == (
        Stay(BEGIN_US + SECOND_US, BEGIN_US + 4 * SECOND_US, "died"),
        Stay(BEGIN_US + 6 * SECOND_US, None, None),
    )
    assert [(one.kind, one.count) for one in lidar.marks] == [("Starved", 2)]
    assert gps.stays == (Stay(None, BEGIN_US + 5 * SECOND_US, "timeout"),)


def test_node_that_was_there_did_not_join_but_one_that_was_given_up_came_back() -> None:
    rows = [
        event(1, "PeerJoined", LIDAR, was_there=True),
        event(2, "PeerLeft", LIDAR, reason="timeout"),
        event(3, "PeerJoined", LIDAR, was_there=True),
        event(4, "PeerJoined", GPS, was_there=False),
    ]
    found = build(tables(topic_health=[health(0, "/a")], node_timeline=rows))
    assert [[stay.was_there for stay in lane.stays] for lane in found.lanes] == [
        [True, False],
        [False],
    ]
    events = [row[1:3] for row in list_tables(found)["events"].rows]
    assert [what for _, what in events] == ["was there", "left", "joined", "joined"]


def test_slow_consumer_is_the_peer_that_is_named_else_our_own_subscription() -> None:
    own = {"policy": "drop_oldest", "dropped": 30, "subscription": "/points", "peer": None}
    rows = [
        event(1, "SlowConsumer", DASH, policy="left_behind", dropped=0, peer={"name": "dash"}),
        event(3, "SlowConsumer", DASH, policy="left_behind", dropped=0, peer={"name": "dash"}),
        # One event that tells of two publishers is two rows.
        event(2, "SlowConsumer", LIDAR, **own),
        event(2, "SlowConsumer", GPS, **own),
        # As another node told of itself.
        event(4, "ConsumerDropped", GPS, **own | {"dropped": 7}),
    ]
    mine, gps, dash = build(tables(node_timeline=rows)).slow
    assert (gps.node, gps.subscription, gps.dropped) == ("gps#cc0000", "/points", 7)
    assert (mine.subscription, mine.dropped, mine.reports) == ("/points", 30, 1)
    assert (dash.node, dash.policy, dash.dropped, dash.reports) == (
        *("dash#bb0000", "left_behind", 0, 2),
    )
    assert dash.last_us - dash.first_us == 2 * SECOND_US


def test_what_nodes_told_that_they_lost_is_added_up() -> None:
    rows = [event(second, "MessagesLost", DASH, lost=3 * second) for second in (1, 2)]
    rows += [event(5, "MessagesLost", GPS, lost=20), event(6, "MessagesLost", GPS, lost="many")]
    figures = build(tables(node_timeline=rows))
    assert [(one.node, one.messages) for one in figures.elsewhere] == [
        ("gps#cc0000", 20),
        ("dash#bb0000", 9),
    ]
    assert "Node dash#bb0000 lost 9 messages between 08:00:01.000 and 08:00:02.000." in [
        one.text for one in find(figures)
    ]


def test_detail_that_is_no_event_tells_nothing_and_does_no_harm() -> None:
    rows = [{**event(1, kind, LIDAR), "detail": text} for kind in ("PeerLeft", "SlowConsumer")
            for text in (None, "", "[1]", "{", '{"dropped": "many", "peer": 3}')]  # fmt: skip
    found = build(tables(node_timeline=rows))
    assert {stay.ended for stay in found.lanes[0].stays} == {"left"}
    assert sum(one.dropped for one in found.slow) == 0


def test_flows_are_added_up_over_time_and_subjects() -> None:
    rows = [
        sent(LIDAR, DASH, "/a", 5),
        sent(LIDAR, DASH, "/b", 6),
        sent(LIDAR, DASH, "/a", 1),
        sent(GPS, DASH, "/c", 3),
    ]
    first, second = build(tables(traffic_matrix=rows)).flows
    assert (first.source, first.receiver, first.messages) == ("lidar#aa0000", "dash#bb0000", 12)
    assert (first.subjects, first.subjects_in_all) == (("/a", "/b"), 2)
    assert second.messages == 3


def test_slots_are_added_up_over_time() -> None:
    rows = [
        slots("/a", slots=10, met=10, missed=0, late=0),
        slots("/b", slots=10, met=8, missed=2, late=0),
        slots("/b", slots=10, met=9, missed=0, late=1),
    ]
    worst, good = build(tables(period_compliance=rows)).periods
    assert (worst.subject, worst.slots, worst.met, worst.missed, worst.late) == ("/b", 20, 17, 2, 1)
    assert good.met == good.slots == 10


def test_empty_tables_give_empty_figures() -> None:
    found = build(tables())
    assert (found.messages, found.clock.columns, found.topics, found.losses) == (0, 0, (), ())


def test_counters_of_the_recorders_node_are_added_up(figures: Figures) -> None:
    assert figures.counters == {"dropped_duplicate": 116, "messages_lost": 14}


def test_rows_of_nulls_do_no_harm() -> None:
    nothing = {name: [{}] for name in morning().tables}
    assert build(tables(**nothing)).messages == 0

"""What `hubbub top` shows, without a terminal and without a bus."""

from random import Random

import pytest

from hubbub.cli.screen import Column
from hubbub.cli.top.payload import write_payload
from hubbub.cli.top.sheet import Cell, Order, Row, arrange, count, text
from hubbub.cli.top.sheets import add_trends, draw_course, draw_trend, figures
from hubbub.cli.top.traffic import PREVIEW_BYTES, TREND_INTERVALS, Traffic
from hubbub.limits import MS, US
from hubbub.message import Message, Source
from tests.unit.cli.test_rates import SOURCE, make_message

ROWS = [
    Row("a", (text("/plant/temp"), Cell("9.9", 9.9))),
    Row("b", (text("/Plant/rate"), Cell("-", None))),
    Row("c", (text("/car/speed"), Cell("1,000", 1000.0))),
]


def keys(rows: list[Row]) -> str:
    return "".join(row.key for row in rows)


@pytest.mark.parametrize(
    ("wanted", "kept"),
    [("", "abc"), ("PLANT", "ab"), ("plant rate", "b"), ("speed plant", ""), ("1,0", "c")],
)
def test_filter_keeps_rows_that_have_all_words(wanted: str, kept: str) -> None:
    assert keys(arrange(ROWS, wanted, Order())) == kept


@pytest.mark.parametrize(
    ("order", "sorted_"),
    [(Order(), "abc"), (Order(0), "cba"), (Order(1, True), "cab"), (Order(1), "acb")],
)
def test_rows_are_sorted_by_value_and_what_is_unknown_comes_last(
    order: Order, sorted_: str
) -> None:
    assert keys(arrange(ROWS, "", order)) == sorted_


def test_sorting_goes_through_all_columns_and_back_to_none() -> None:
    columns = [Column("subject", is_number=False), Column("per s")]
    first = Order().next(columns)
    second = first.next(columns)
    assert (first, second, second.next(columns)) == (Order(0), Order(1, True), Order())


def test_cells_are_escaped_and_only_bad_numbers_strike_the_eye() -> None:
    assert text("/\x1b[2J").text.isprintable()
    assert (count(3, is_bad=True).tone, count(0, is_bad=True).tone) == ("bad", "faint")


def test_figures_are_of_the_interval_and_losses_of_all_time() -> None:
    traffic = Traffic()
    traffic.add_messages([make_message(1, latency_ns=MS), make_message(4, latency_ns=3 * MS)])
    [first] = traffic.end_interval(2.0)
    assert (first.rate, first.byte_rate, first.lost, first.messages) == (1.0, 1.0, 2, 2)
    assert (first.percentile_ns(0), first.percentile_ns(1)) == (MS, 3 * MS)
    traffic.add_messages([make_message(5, latency_ns=5 * US, size_bytes=100)])
    [second] = traffic.end_interval(1.0)
    assert (second.rate, second.byte_rate, second.lost, second.messages) == (1.0, 100.0, 2, 3)
    assert list(second.latencies_ns) == [5 * US] and second.trend == (1.0, 1.0)
    [third] = traffic.end_interval(1.0)
    assert third.rate == 0 and list(third.latencies_ns) == [5 * US]  # The last that are known.


def test_topic_that_is_silent_for_long_is_forgotten() -> None:
    traffic = Traffic()
    traffic.add_messages([make_message(1)])
    for _ in range(TREND_INTERVALS):
        assert len(traffic.end_interval(1.0)) == 1
    assert len(traffic.end_interval(1.0)) == 1  # Only now nothing of it is left.
    assert traffic.end_interval(1.0) == ()


def test_numbers_of_samples_tell_of_no_loss() -> None:
    traffic = Traffic()
    traffic.add_samples([make_message(1), make_message(9)])
    [figure] = traffic.end_interval(1.0)
    assert (figure.is_sampled, figure.lost) == (True, 0)
    assert [cell.text for cell in figures([figure])][-1] == "-"


def test_newest_payload_is_copied_and_cut() -> None:
    payload = bytearray(b"x" * 2 * PREVIEW_BYTES)
    traffic = Traffic()
    view = memoryview(payload).toreadonly()
    traffic.add_messages([Message("/a", view, SOURCE, 1, 0, 0, "local", None)])
    [figure] = traffic.end_interval(1.0)
    payload[:1] = b"y"
    assert figure.newest.preview == b"x" * PREVIEW_BYTES
    assert figure.newest.size_bytes == 2 * PREVIEW_BYTES


def test_publishers_of_a_subject_are_added_up() -> None:
    traffic = Traffic()
    traffic.add_messages([make_message(1)])
    traffic.end_interval(1.0)
    traffic.add_messages([make_message(2), make_message(1, source=Source("b", bytes(12), 2))])
    both = list(traffic.end_interval(1.0))
    assert add_trends(both) == [1.0, 2.0]
    assert next(figures(both)).rank == 2.0
    assert add_trends([]) == []


@pytest.mark.parametrize(
    ("trend", "bars"), [([], ""), ([0, 0], ""), ([0, 5, 10], "▁▄▆"), ([3] * 20, "▆" * 10)]
)
def test_trend_is_drawn_from_nothing_to_the_highest(trend: list[float], bars: str) -> None:
    assert draw_trend(trend) == bars


@pytest.mark.parametrize(
    ("trend", "lines"),
    [
        ([10.0, 10.1], ["████", "████"]),  # Steady is no mountain.
        ([8.0, 0.0, 4.0, 0.01], ["█   ", "█ █▁"]),
        ([], ["", ""]),
    ],
)
def test_course_is_drawn_from_nothing_to_the_highest(trend: list[float], lines: list[str]) -> None:
    assert draw_course(trend, 4, 2) == lines


@pytest.mark.parametrize(
    ("payload", "schema", "lines"),
    [
        (b"", "", ["(empty)"]),
        (b"21.5", "", ["21.5"]),
        (b"one\n\x1b[1m", "", [f"000000  {'6f 6e 65 0a 1b 5b 31 6d':48} one..[1m"]),
        (b'{"a":[1]}', "", ["{", '  "a": [', "    1", "  ]", "}"]),
        (b"\x81\xa1a\x07", "Reading", ["{", '  "a": 7', "}"]),
        (b"\xff\xfe", "", [f"000000  {'ff fe':48} .."]),
    ],
)  # fmt: skip
def test_payload_is_written_as_what_it_is(payload: bytes, schema: str, lines: list[str]) -> None:
    assert write_payload(payload, schema, len(payload)) == lines


def test_payload_says_how_much_of_it_is_not_shown() -> None:
    assert write_payload(b"abc", "", 1_000_003)[-1] == "... and 1,000,000 bytes more"


def test_whatever_a_payload_holds_can_be_shown() -> None:
    random = Random(7)
    for _ in range(500):
        payload = random.randbytes(random.randrange(40))
        for schema in ("", "Reading"):
            assert all(line.isprintable() for line in write_payload(payload, schema, len(payload)))

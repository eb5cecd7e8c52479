"""The tools that measure: what they add up, write and refuse. Figures themselves are no tests."""

import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks import broker, pair, peers, recorder, report, services, veth, work
from benchmarks.figures import Book

SECOND_NS = 1_000_000_000


def outcome(measure: str, sent: int, received: int) -> dict[str, Any]:
    return {measure: {"sent": sent, "received": received, "messages_per_second": received / 2}}


def filled_book() -> Book:
    book = Book(subscribers=8)
    for rate in (1, 2, 3):
        book.add("hubbub", "fan-out", 1 << 20, outcome("fan-out", 8000 * rate, 8000 * rate))
        book.add("lcm", "fan-out", 1 << 20, outcome("fan-out", 8000, 8000 - rate))
    return book


def test_events_of_many_are_set_when_all_are() -> None:
    events = [threading.Event() for _ in range(3)]
    all_of = work.AllOf(events)
    for event in events:
        assert not all_of.is_set()
        assert not all_of.wait(0.001)
        event.set()
    assert all_of.is_set()
    assert all_of.wait(0.0)


def test_publisher_goes_on_when_every_subscriber_has_heard_and_ended() -> None:
    signals = [
        work.Signals(threading.Event(), (threading.Event(), threading.Event())) for _ in range(2)
    ]
    together = pair._all_of(signals)
    for event_of in (lambda one: one.heard, lambda one: one.ended[0], lambda one: one.ended[1]):
        for one in signals:
            assert not event_of(together).is_set()
            event_of(one).set()
        assert event_of(together).is_set()


def test_fan_out_is_what_all_got_until_the_last_had_it() -> None:
    into = [
        {"received": 100, "end_ns": 2 * SECOND_NS},
        {"received": 90, "end_ns": 5 * SECOND_NS},
    ]
    phase = pair._phase({"sent": 100, "start_ns": SECOND_NS}, into)
    assert (phase["sent"], phase["received"], phase["received_each"]) == (200, 190, [100, 90])
    assert (phase["seconds"], phase["messages_per_second"]) == (4, 47.5)


def test_more_than_was_sent_is_no_result() -> None:
    into = [{"received": 90, "end_ns": 2}, {"received": 101, "end_ns": 2}]
    with pytest.raises(pair.PairFailed, match="101 messages arrived of 100"):
        pair._phase({"sent": 100, "start_ns": 1}, into)


def test_table_of_a_fan_out_has_rate_spread_ratio_and_every_loss() -> None:
    text = report.render(filled_book(), ["hubbub", "lcm"], [1 << 20], ["fan-out"])
    assert "to 8 subscriber processes together" in text
    assert "| hubbub | 8.0 k/s, 8.39 GB/s ±25% 2.00x |" in text
    assert "| lcm    | 4.0 k/s, 4.19 GB/s ±0% 1.00x  |" in text
    assert "Deliveries lost in all rounds: lcm, 1 MiB: 6 of 24,000; nowhere else any." in text
    assert "Round trip" not in text and "round trip" not in text


def test_table_says_that_nothing_was_lost_only_of_what_was_measured() -> None:
    said = "No delivery was lost in any round."
    assert said in report.render(filled_book(), ["hubbub"], [1 << 20], ["fan-out"])
    assert said not in report.render(Book(), ["hubbub"], [1 << 20], ["fan-out"])


def test_table_between_hosts_is_in_megabytes() -> None:
    book = Book()
    book.add("hubbub-veth", "veth", 1 << 20, outcome("veth", 1000, 1000))
    book.add("pyzmq-veth", "veth", 1 << 20, outcome("veth", 500, 500))
    text = report.render(book, ["hubbub-veth", "pyzmq-veth"], [1 << 20], ["veth"])
    assert "| hubbub-veth | 524 MB/s ±0% 2.00x |" in text


def test_table_goes_to_its_own_place_of_the_readme(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    places = [f"<!-- {name}:begin -->\nold\n<!-- {name}:end -->\n" for name in ("benchmark", "b-2")]
    readme.write_text("before\n" + "between\n".join(places) + "after\n")
    report.write_readme(readme, "b-2", "new\n")
    assert readme.read_text() == (
        f"before\n{places[0]}between\n<!-- b-2:begin -->\nnew\n<!-- b-2:end -->\nafter\n"
    )
    with pytest.raises(SystemExit, match="b-3:begin"):
        report.write_readme(readme, "b-3", "new\n")


@pytest.mark.parametrize("place", ["benchmark", "benchmark-fan-out", "benchmark-veth"])
def test_readme_has_a_place_for_every_table(tmp_path: Path, place: str) -> None:
    copy = tmp_path / "README.md"
    copy.write_text(report.README.read_text())
    report.write_readme(copy, place, "here\n")
    assert f"<!-- {place}:begin -->\nhere\n<!-- {place}:end -->" in copy.read_text()


def test_fan_out_has_eight_subscribers_three_sizes_and_results_of_its_own() -> None:
    options = command.parse(["--fan-out"])
    assert (options.fan_out, options.kinds) == (8, ["fan-out"])
    assert options.sizes == [64, 64 << 10, 1 << 20]
    assert options.json.name == "fan-out.json"
    options = command.parse(["--fan-out", "3", "--sizes", "64,65536", "--peers", "hubbub,lcm"])
    assert (options.fan_out, options.sizes, options.rows) == (3, [64, 65536], ["hubbub", "lcm"])


def test_pairs_are_measured_as_ever() -> None:
    options = command.parse([])
    assert (options.kinds, len(options.sizes)) == (["throughput", "latency"], 6)
    assert (options.rows, options.json.name) == (list(peers.ROWS), "latest.json")
    assert command.parse(["--kind", "latency"]).kinds == ["latency"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--fan-out", "0"], "--fan-out 0: from 1 to 63"),
        (["--fan-out", "64"], "--fan-out 64: from 1 to 63"),
        (["--fan-out", "--kind", "latency"], "--kind is of pairs"),
        (["--sizes", "64,8"], "8 bytes: the smallest payload is 64"),
        (["--peers", "pigeon"], "--only pigeon: there are hubbub"),
    ],
)
def test_wrong_flags_are_refused_with_the_bound(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command.parse(arguments)
    assert text in capsys.readouterr().err


def test_between_hosts_without_root_is_one_clear_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert veth.main([]) == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err == "python -m benchmarks.veth needs root, unshare, nsenter and ip\n"


def test_recorder_is_compared_by_medians_and_every_loss_is_shown() -> None:
    def outcomes(*rates: float, lost: int = 0) -> list[dict[str, Any]]:
        return [{"rate": rate, "lost": lost, "peak_bytes": int(rate)} for rate in rates]

    found = {
        "hubbub": outcomes(600e3, 400e3, 500e3),
        "mcap": outcomes(100e3, 90e3, 110e3, lost=2),
        "large": outcomes(300, 400, 350),
        "dd": [500.0, 400.0, 700.0],
    }
    text = "\n".join(recorder.describe(found))
    assert "| Hubbub, synced | 500 k/s | 0 | 1 MB |" in text
    assert "| mcap writer in a callback | 100 k/s | 6 | 0 MB |" in text
    assert "5.0 times the mcap writer (bar: 3)" in text
    assert "70% of dd (bar: 70%)" in text


def test_publisher_of_the_recorder_benchmark_stays_within_what_may_wait() -> None:
    assert recorder.ahead_of(recorder.LARGE) == 64
    assert recorder.ahead_of(recorder.SMALL) == recorder.AHEAD_MESSAGES


def test_services_are_measured_against_brokers_by_fan_out_and_round_trip() -> None:
    options = services.parse([])
    assert (options.kinds, options.sizes) == (["fan-out", "latency"], [64, 1024])
    assert [row for row in options.rows if not peers.is_ours(row)] == [
        "nats", "mosquitto", "mosquitto-qos1",
    ]  # fmt: skip


def test_broker_that_is_missing_is_named_with_what_to_install() -> None:
    with pytest.raises(FileNotFoundError, match="no such-broker here: install it"):
        broker.find("such-broker", "install it")


def test_broker_runs_for_one_measurement() -> None:
    number = broker.free_port()
    command = [sys.executable, "-m", "http.server", "--bind", broker.HOST, str(number)]
    with broker.running(command, number):
        assert broker.port() == number
    with pytest.raises(ConnectionRefusedError), socket.create_connection((broker.HOST, number)):
        pass

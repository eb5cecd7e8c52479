"""Options that cannot work are refused with the value and the bound; logs can be switched."""

import logging
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import hubbub
from hubbub import ConfigurationError, Faults, HubbubError, Settings, set_log
from hubbub.limits import FRAME_BYTES_MIN
from hubbub.runtime.logs import CONCERNS, RateLimit
from tests.integration.bus import ROOT, descriptors, fresh_place, take, wait_until

NUMBERS = [field.name for field in fields(Settings) if field.name != "nagging_policy"]
POSITIVE = {
    "heartbeat_ms", "peer_timeout_ms", "cache_bytes", "repair_window_ms", "repair_rounds",
    "repair_time_ms", "slow_ms", "send_timeout", "backlog_bytes", "message_bytes",
    "reassembly_bytes", "hop_limit",
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_refuses_what_is_none_or_negative_or_endless(name: str) -> None:
    nonsense: list[Any] = [-1, "5", None, True, float("nan"), float("inf"), [1]]
    nonsense += [0] if name in POSITIVE else []
    for value in nonsense:
        options: dict[str, Any] = {name: value}
        with pytest.raises(ConfigurationError, match=rf"{name}={re.escape(repr(value))}"):
            Settings(**options)
        if value is None:
            continue  # To `open` it says that the option is not given.
        with pytest.raises(ConfigurationError, match=rf"{name}="):
            fresh_place().open("n", **options)


def test_every_setting_accepts_a_sensible_value() -> None:
    for field in fields(Settings):
        options: dict[str, Any] = {field.name: field.default}
        assert getattr(Settings(**options), field.name) == field.default


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"heartbeat_ms": 3000}, "peer_timeout_ms=3000.0 must be more than heartbeat_ms=3000"),
        ({"window_bytes": 1000}, "window_bytes=1000 is below 16384"),
        ({"message_bytes": 1 << 40}, "message_bytes=1099511627776 is above 1073741824"),
        ({"hop_limit": 256}, "hop_limit=256 is above 255"),
        ({"nagging_policy": "panic"}, "'panic' is none of suspend, report, resync"),
        ({"cache_bytes": 1.5}, "cache_bytes=1.5 is not a whole number"),
        ({"no_such_option": 1}, "unknown option no_such_option; there are .*heartbeat_ms"),
        ({"intreface": "lo"}, r"unknown option intreface; did you mean interface\?"),
        ({"domain": ""}, "domain=.. must be 1 to"),
        ({"peers": "nohost::"}, "is no address"),
        ({"frame_bytes_max": 100}, f"frame_bytes_max 100 must be from {FRAME_BYTES_MIN} to 65507"),
        ({"frame_bytes_max": 70_000}, f"frame_bytes_max 70000 must be from {FRAME_BYTES_MIN} to"),
        ({"receive_buffer_bytes": -1}, "receive_buffer_bytes=-1 must be at least 0"),
        ({"send_buffer_bytes": "big"}, "send_buffer_bytes='big' is not a whole number"),
        ({"delivery_threads_max": 0}, "delivery_threads_max=0 must be at least 1"),
        ({"switch_interval_ms": 0}, "switch_interval_ms=0 must be more than 0"),
        ({"switch_interval_ms": "x"}, "switch_interval_ms='x' is not a number"),
        ({"node_id": b"short"}, "12 bytes, or 24 hex digits"),
        ({"node_id": "zz" * 12}, "12 bytes, or 24 hex digits"),
        ({"node_id": 5}, "12 bytes, or 24 hex digits"),
        ({"domain": "x" * 256}, "1 to 255 bytes"),
        ({"domain": "a\nb"}, "printable"),
        ({"domain": 7}, "domain=7"),
        ({"log": "nonsense"}, "nonsense: choose of all, connection"),
        ({"key_file": "/etc/key"}, "key_file=/etc/key: this version cannot seal frames"),
        ({"faults": 0.1}, "faults=0.1"),
        ({"channels": ["239.1.1.1"]}, "'239.1.1.1'.*Channel"),
        ({"channels": hubbub.Channel()}, r"channels=Channel\(.*give a list of hubbub\.Channel"),
        ({"channels": 5}, "channels=5: give a list"),
        ({"peers": 5}, "peers=5: give a list"),
        ({"links": 5}, "links=5: give a list"),
        ({"log": 5}, "log=5: give names"),
        ({"loopback": "no"}, "loopback='no': give True or False"),
        ({"offload": 1}, "offload=1: give True, False or None"),
        ({"interface": 5}, "interface=5"),
        ({"on_event": 5}, "on_event=5"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_option_of_open_that_cannot_work_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(HubbubError, match=text) as caught:
        fresh_place().open("n", **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "x" * 256, "a\tb", 5])
def test_name_that_cannot_be_printed_or_is_too_long_is_refused(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="name="):
        fresh_place().open(name)


@pytest.mark.parametrize(
    "faults", [{"loss": 1.1}, {"duplicate": -1}, {"delay_ms": 1e9}, {"seed": "x"}, {"direction": 1}]
)
def test_faults_that_cannot_be_meant_are_refused(faults: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(faults))):
        hubbub.Faults(**faults)


@pytest.mark.parametrize(
    "options",
    [
        {"queue": 0},
        {"queue": "x"},
        {"overflow": "panic"},
        {"inline": True},
        {"callback": 5},
        {"on_event": 5},
        {"type": 5},
        {"channel": 5},
    ],
)
def test_option_of_subscribe_that_cannot_work_is_refused(options: dict[str, Any]) -> None:
    with fresh_place().open("n") as node:
        with pytest.raises(ConfigurationError, match=next(iter(options))):
            node.subscribe("/x", **options)
        assert node.statistics().subscriptions == ()


def test_refused_node_leaves_nothing_behind() -> None:
    before = descriptors()
    channels = [hubbub.Channel("239.1.1.1", fresh_place().port)] * 2
    with pytest.raises(ConfigurationError):
        fresh_place().open("n", channels=channels)
    wait_until(lambda: not descriptors() - before)


def test_key_file_in_the_environment_is_refused_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUBBUB_KEY_FILE", "/etc/key")
    with pytest.raises(ConfigurationError, match="/etc/key"):
        fresh_place().open("n")


def test_domain_and_interface_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    place = fresh_place()
    monkeypatch.setenv("HUBBUB_DOMAIN", place.domain)
    monkeypatch.setenv("HUBBUB_INTERFACE", "127.0.0.1")
    with hubbub.open(channels=[hubbub.Channel(place.group, place.port)]) as node:
        assert node.domain == place.domain
        assert node.statistics().channels[0].link.interfaces == ("lo",)


# Logs.


@pytest.fixture
def quiet() -> Any:
    """Put the loggers back afterwards."""
    root = logging.getLogger("hubbub")
    handlers = list(root.handlers)
    yield
    set_log("")
    root.handlers[:] = handlers


@pytest.mark.usefixtures("quiet")
def test_logs_are_switched_at_run_time(caplog: pytest.LogCaptureFixture) -> None:
    place = fresh_place()
    with place.open("n") as node:
        set_log("peers,wire.in,wire.out,subscription,cache,segments")
        with place.open("peer") as peer:
            subscription = peer.subscribe("/x")
            publisher = node.publisher("/x")
            assert publisher.wait_for_subscribers(1, 10)
            wait_until(lambda: "hubbub.cache" in {record.name for record in caplog.records})
            publisher.publish(b"x")
            take(subscription, 1)
        heard = {record.name for record in caplog.records}
        expected = {"peers", "wire.in", "wire.out", "subscription", "cache", "segments"}
        assert heard >= {f"hubbub.{concern}" for concern in expected}
        assert "peer joined: peer#" in caplog.text and "subscribed to /x" in caplog.text
        set_log("")
        wait_until(lambda: not node.channels[0].driver.journal.is_tracing_out)
        caplog.clear()
        caplog.set_level(logging.DEBUG)  # As some applications have it.
        with place.open("another"):
            wait_until(lambda: len(node.statistics().channels[0].peers) == 1)
        assert [record for record in caplog.records if record.name.startswith("hubbub")] == []


@pytest.mark.usefixtures("quiet")
def test_statistics_and_repairs_are_logged_periodically(caplog: pytest.LogCaptureFixture) -> None:
    place, count = fresh_place(), 200
    options = {"log": "statistics,repair", "statistics_interval": 1, "frame_bytes_max": 1472}
    lossy = Faults(loss=0.3, direction="in")
    with place.open("p", **options) as sender, place.open("s", faults=lossy) as receiver:
        subscription = receiver.subscribe("/x", queue=count)
        publisher = sender.publisher("/x")
        assert publisher.wait_for_subscribers(1, 10)
        for _ in range(count):
            publisher.publish(bytes(1000))
        take(subscription, count)
        name = sender.channels[0].name
        for line in (
            rf"{name}: asked [1-9]\d* times for frames, was asked 0 times, sent 0 frames again",
            rf"{name}: asked 0 times for frames, was asked [1-9]\d* times, sent [1-9]\d* frames",
            rf"{name}: peers=1 messages_sent={count} repairs_sent=[1-9].* frames_out=",
        ):
            wait_until(lambda line=line: re.search(line, caplog.text))


def test_busy_logger_is_limited_and_counts_what_it_leaves_out() -> None:
    limit = RateLimit(lines_per_second=3)
    record = logging.LogRecord("x", logging.INFO, "", 0, "line %d", (1,), None)
    while True:
        limit._second = -1
        passed = [limit.filter(record) for _ in range(5)]
        if limit._second != -1 and passed.count(True) == 3:
            break
    limit._second = -1  # The next second.
    assert limit.filter(record)
    assert record.getMessage() == "line 1 (and 2 lines left out)"


def test_every_concern_is_rate_limited() -> None:
    for concern in CONCERNS:
        filters = logging.getLogger(f"hubbub.{concern}").filters
        assert any(isinstance(one, RateLimit) for one in filters)


def test_log_is_switched_on_by_the_environment_and_says_nothing_otherwise() -> None:
    script = (
        "import hubbub; node = hubbub.open('n', interface='127.0.0.1'); node.subscribe('/x');"
        " node.close()"
    )
    outputs = []
    for log in ("connection,subscription", ""):
        environment = {**os.environ, "HUBBUB_LOG": log, "HUBBUB_DOMAIN": fresh_place().domain}
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True,
            text=True, timeout=30, check=True,
        )  # fmt: skip
        outputs.append(done.stderr)
    assert "hubbub.connection joined 239.255.72.66:7266 on lo" in outputs[0]
    assert "hubbub.subscription subscribed to /x" in outputs[0]
    assert outputs[1] == ""


def test_log_handler_may_publish() -> None:
    """A handler that puts log lines on the bus must not wait for a lock that its own node holds."""
    script = Path(__file__).with_name("log_to_bus.py")
    done = subprocess.run(
        [sys.executable, script, fresh_place().domain], cwd=ROOT, capture_output=True, text=True,
        timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "peer joined" in done.stdout

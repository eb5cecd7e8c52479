"""Calling peers: what is an address, when they are called again, and whom nobody need call."""

import select
import socket
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from hubbub.errors import ConfigurationError
from hubbub.limits import DIAL_INTERVAL, DIAL_INTERVAL_CEILING, DIAL_TIMEOUT, MS
from hubbub.links.dialling import Dialler, HostAndPort, parse_address
from tests.integration.link_probe import free_port

OWN, OTHER = b"o" * 20, b"p" * 20
PATIENCE_S = 20.0


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("10.0.0.7:7266", "10.0.0.7", 7266),
        (" plant-7 ", "plant-7", 0),
        ("plant-7.lan:80", "plant-7.lan", 80),
        ("[fe80::1]:7266", "fe80::1", 7266),
        ("[fe80::1%eth0]:7266", "fe80::1%eth0", 7266),
        ("[::1]", "::1", 0),
        ("::1", "::1", 0),
    ],
)
def test_address_is_taken_apart(text: str, host: str, port: int) -> None:
    assert parse_address(text, "peers") == HostAndPort(host, port)


@pytest.mark.parametrize(
    "text",
    ["", " ", ":7266", "host:", "host:0", "host:65536", "host:http", "host:-1", "[::1", "[::1]7266",
     "[]:80", "a\nb", "x" * 256, "host:¹", 7266, None, b"host"],
)  # fmt: skip
def test_what_is_no_address_is_refused_by_name(text: Any) -> None:
    with pytest.raises(ConfigurationError, match="peers=") as caught:
        parse_address(text, "peers")
    assert "\n" not in str(caught.value)


class Caller:
    """A dialler under a clock that a test moves."""

    def __init__(self, *peers: HostAndPort) -> None:
        self.epoll = select.epoll()
        self.dialler = Dialler(list(peers), OWN, Random(7), self.epoll, 0)
        self.connected: set[bytes] = set()
        self.now = 1

    def step(self) -> list[Any]:
        """Go to the next deadline; return the connections that came of it."""
        deadline_ns = self.dialler.deadline()
        assert deadline_ns is not None
        self.now = max(self.now, deadline_ns)
        self.dialler.advance(self.now, self.connected)
        ends = [self.dialler.answered(self.now, fileno) for fileno, _ in self.epoll.poll(0.05)]
        return [end for end in ends if end is not None]

    def close(self) -> None:
        self.dialler.close()
        self.epoll.close()


@pytest.fixture
def port() -> Iterator[int]:
    """Where somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_peer_that_is_not_there_is_called_ever_less_often_and_never_at_fixed_times() -> None:
    caller = Caller(HostAndPort("127.0.0.1", free_port()))
    [target] = caller.dialler.targets
    times = []
    for _ in range(12):
        assert caller.step() == []
        times.append(caller.now)
    waits = [later - earlier for earlier, later in pairwise(times)]
    ceilings = [min(DIAL_INTERVAL << turn, DIAL_INTERVAL_CEILING) for turn in range(11)]
    for wait, ceiling in zip(waits, ceilings, strict=True):
        assert ceiling // 2 <= wait <= ceiling
    assert len(set(waits[-5:])) == 5, "drawn anew each time"
    caller.dialler.met(target, OTHER)
    assert target.interval_ns == DIAL_INTERVAL, "who was met is called soon again"
    caller.close()


def test_who_answers_is_handed_over_and_not_called_again(port: int) -> None:
    caller = Caller(HostAndPort("127.0.0.1", port))
    [(opened, target)] = caller.step()
    assert opened.getpeername() == ("127.0.0.1", port)
    assert caller.dialler.deadline() is None and caller.dialler.calls == 0
    caller.dialler.met(target, OTHER)
    caller.dialler.retry(caller.now, target)
    assert caller.dialler.deadline() is not None, "its connection has ended"
    opened.close()
    caller.close()


def test_who_is_connected_otherwise_is_not_called_until_that_ends(port: int) -> None:
    caller = Caller(HostAndPort("127.0.0.1", port))
    [target] = caller.dialler.targets
    target.key = OTHER
    caller.connected.add(OTHER)
    assert caller.step() == [] and caller.dialler.deadline() == caller.now + DIAL_INTERVAL_CEILING
    caller.connected.clear()
    caller.dialler.missed(caller.now, OTHER)
    assert caller.dialler.deadline() == caller.now + DIAL_INTERVAL
    [(opened, _)] = caller.step()
    opened.close()
    caller.close()


def test_nobody_calls_itself_twice(port: int) -> None:
    caller = Caller(HostAndPort("127.0.0.1", port))
    [(opened, target)] = caller.step()
    opened.close()
    caller.dialler.met(target, OWN)
    caller.dialler.retry(caller.now, target)
    assert caller.dialler.deadline() is None
    caller.close()


def test_call_that_nobody_answers_is_ended() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        address = deaf.getsockname()
        fillers = []
        for _ in range(4):  # A full queue drops further calls without a word.
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(address)
            fillers.append(filler)
        caller = Caller(HostAndPort(*address))
        assert caller.step() == [] and caller.dialler.calls == 1
        assert caller.dialler.deadline() == caller.now + DIAL_TIMEOUT
        caller.now += DIAL_TIMEOUT
        caller.dialler.advance(caller.now, ())
        assert caller.dialler.calls == 0
        assert caller.dialler.deadline() != caller.now + DIAL_TIMEOUT
        caller.close()
        for filler in fillers:
            filler.close()


def test_name_is_looked_up_beside_the_loop(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sound, is_answered = socket.getaddrinfo, threading.Event()

    def slow(host: str, *others: Any, **options: Any) -> Any:
        if host == "plant-7.test":
            if options.get("flags"):
                raise socket.gaierror
            assert is_answered.wait(PATIENCE_S), "the loop waits for the answer"
            host = "127.0.0.1"
        return sound(host, *others, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    caller, made = Caller(HostAndPort("plant-7.test", port)), []
    assert caller.step() == []
    is_answered.set()
    end_s = time.monotonic() + PATIENCE_S
    while not made and time.monotonic() < end_s:
        made = caller.step()
    assert made[0][0].getpeername() == ("127.0.0.1", port)
    made[0][0].close()
    caller.close()


def test_name_that_is_not_found_is_looked_up_ever_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def fail(host: str, *others: Any, **options: Any) -> Any:
        asked.extend([host] if not options.get("flags") else [])
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    caller = Caller(HostAndPort("nowhere.test", 1))
    [target] = caller.dialler.targets
    end_s = time.monotonic() + PATIENCE_S
    while len(asked) < 4 and time.monotonic() < end_s:
        caller.step()
        time.sleep(0.001)
    assert target.interval_ns >= 4 * DIAL_INTERVAL and caller.now > 300 * MS
    caller.close()


def test_who_is_told_of_is_called_until_nobody_tells_of_it(port: int) -> None:
    caller, place = Caller(), HostAndPort("127.0.0.1", port)
    caller.dialler.call_also({place: OTHER})
    [(opened, target)] = caller.step()
    assert (target.host, target.port, caller.dialler.found) == (*place, 1)
    caller.dialler.call_also({place: OTHER})
    assert caller.dialler.targets == [target], "it is called already"
    caller.dialler.call_also({})
    caller.dialler.retry(caller.now, target)
    assert caller.dialler.deadline() is None, "its connection has ended, and nobody tells of it"
    opened.close()
    caller.close()


def test_who_is_told_of_in_another_life_is_called_anew(port: int) -> None:
    caller, place = Caller(), HostAndPort("127.0.0.1", port)
    caller.dialler.call_also({place: OTHER})
    caller.connected.add(OTHER)
    assert caller.step() == [], "it has called us"
    caller.dialler.call_also({place: b"q" * 20})
    [(opened, _)] = caller.step()
    opened.close()
    caller.close()


def test_who_is_nearby_is_called_only_if_it_was_named(port: int) -> None:
    place = HostAndPort("127.0.0.1", port)
    caller = Caller(place)
    caller.dialler.is_nearby = lambda key: True
    caller.dialler.call_also({place: OTHER, HostAndPort("127.0.0.2", port): OTHER})
    assert caller.dialler.found == 1, "the other one was named"
    [(opened, target)] = caller.step()
    assert target.host == "127.0.0.1"
    opened.close()
    caller.close()


def test_named_peer_that_does_not_answer_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    place = HostAndPort("127.0.0.1", free_port())
    caller = Caller(place)
    caller.dialler.call_also({HostAndPort("127.0.0.1", free_port()): OTHER})
    for _ in range(20):
        assert caller.step() == []
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        f"peers: nobody answers at {place.host} port {place.port}; it is called again and again"
    ]
    caller.close()

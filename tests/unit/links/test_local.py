"""Pipes between two links of one process: who may connect, what arrives, and how it ends."""

import os
import select
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from hubbub.errors import LinkError
from hubbub.links.local import LocalLink
from hubbub.links.meeting import runtime_directory
from hubbub.links.pipes import BACKLOG_BYTES_MAX, LOOKS_MAX
from hubbub.protocol.burst import Pipes

A, B, C = (bytes([number]) * 20 for number in (1, 2, 3))
DOMAIN, CHANNEL = 7, "239.1.2.3:4567"
PATIENCE_S = 20.0


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory with a name short enough for the sockets in it."""
    with tempfile.TemporaryDirectory(prefix="hub") as made:
        yield Path(made)


@pytest.fixture
def open_link(directory: Path) -> Iterator[Callable[..., LocalLink]]:
    links: list[LocalLink] = []

    def open_one(
        key: bytes, domain: int = DOMAIN, channel: str = CHANNEL, **options: Any
    ) -> LocalLink:
        links.append(LocalLink(key, domain, channel, directory, **options))
        return links[-1]

    yield open_one
    for link in links:
        link.close()
    assert os.listdir(directory) == []


def pump(links: list[LocalLink], is_done: Callable[[], Any]) -> list[tuple[bytes, int, Any]]:
    """Serve links until something is so; return what they received."""
    received: list[tuple[bytes, int, Any]] = []
    end_s = time.monotonic() + PATIENCE_S
    while not is_done():
        assert time.monotonic() < end_s, "it did not happen"
        for link in links:
            received += link.receive()
            if link.has_room:
                link.flush()
            link.sweep()
    return received


def meet(*links: LocalLink) -> None:
    pump(list(links), lambda: all(len(link.opened) == len(links) - 1 for link in links))
    for link in links:
        link.opened.clear()


def test_who_comes_later_connects_to_everybody_who_is_here(open_link: Any) -> None:
    links = [open_link(key) for key in (B, A, C)]
    meet(*links)
    assert [link.statistics().pipes for link in links] == [2, 2, 2]


@pytest.mark.parametrize("keys", [(A, B), (B, A)])
def test_who_may_not_be_met_yet_is_connected_to_later(open_link: Any, keys: Any) -> None:
    known: set[bytes] = set()
    one, other = open_link(keys[0], may_meet=known.__contains__), open_link(keys[1])
    pump([one, other], lambda: not one._strangers and not other._strangers)
    assert not one.opened and not one.statistics().pipes
    known.add(keys[1])

    def is_met() -> bool:
        one.look_around()
        other.look_around()
        return bool(one.opened and other.opened)

    pump([one, other], is_met)
    assert one.statistics().pipes == other.statistics().pipes == 1


def test_two_who_connect_at_once_keep_one_pipe_and_tell_that_it_leads_on(open_link: Any) -> None:
    known: set[bytes] = set()
    one, other = open_link(A), open_link(B, may_meet=known.__contains__)
    one.look_around()  # The pipe that stays.
    known.add(A)
    other._connect(A)  # The one too many.
    pump([one], lambda: one.opened)
    pump([other], lambda: other.opened and not other._strangers)
    one.opened.clear()
    pump([one], lambda: one.opened)
    assert [closed.key for closed in one.closed] == [B], "the surplus pipe ends in the same moment"
    assert one.source_of(B) == one.opened[0]
    assert one.statistics().pipes == other.statistics().pipes == 1


def test_who_cannot_be_accepted_for_now_wakes_nobody_and_is_accepted_later(
    open_link: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = open_link(A)
    with monkeypatch.context() as patch:
        patch.setattr(one._meeting, "accept", lambda: None)  # As where no descriptor is left.
        other = open_link(B)
        one.receive()
        assert select.select([one.fileno()], [], [], 0) == ([], [], [])
    one.look_around()
    meet(one, other)


@pytest.mark.parametrize("segment_bytes", [0, 1000])
def test_a_burst_arrives_as_it_was_sent(open_link: Any, segment_bytes: int) -> None:
    one, other = open_link(A), open_link(B)
    meet(one, other)
    frames = [b"h" * 1000, memoryview(b"h" * 700)]
    one.send(Pipes((B,)), frames, segment_bytes)
    received: list[Any] = []
    while not received:
        received = other.receive() or other.look()
    assert received == [(b"h" * 1700, segment_bytes, Pipes((A,)))]


def test_another_domain_or_channel_is_not_met(open_link: Any) -> None:
    one = open_link(A)
    open_link(B, domain=DOMAIN + 1)
    open_link(C, channel="239.1.2.3:4568")
    one.receive()
    assert one.statistics().pipes == 0 and not one.opened


def test_both_that_connect_at_the_same_moment_keep_one_and_the_same_pipe(open_link: Any) -> None:
    one, other = open_link(A), open_link(B)
    one._connect(B)  # As if it had seen the other before the other saw it.
    assert pump([one, other], lambda: all(one_pipe(link) for link in (one, other))) == []
    assert one._pipes[B].is_ours and not other._pipes[A].is_ours
    one.send(Pipes((B,)), [b"hello"], 0)
    other.send(Pipes((A,)), [b"hello back"], 0)
    received: list[Any] = []
    while len(received) < 2:
        received += one.receive() + other.receive()


def one_pipe(link: LocalLink) -> bool:
    return len(link._by_fileno) == len(link._pipes) == 1


def test_the_end_of_a_pipe_is_told(open_link: Any) -> None:
    one, other = open_link(A), open_link(B)
    meet(one, other)
    other.send(Pipes((A,)), [b"the last"], 0)
    other.close()
    received = pump([one], lambda: one.closed)
    assert [data for data, _, _ in received] == [b"the last"], "before the end, what was sent"
    assert list(one.closed) == [(B, False)], "this very process has not ended"
    one.send(Pipes((B,)), [b"nobody"], 0)
    assert one.statistics().dropped == 1


def test_a_pipe_that_broke_is_made_again(open_link: Any) -> None:
    one, other = open_link(A), open_link(B)
    meet(one, other)
    one._pipes[B].socket.shutdown(socket.SHUT_RDWR)
    pump([one, other], lambda: one.closed and other.closed)
    other.look_around()
    assert other.statistics().pipes == 0, "the one with the smaller key does it"
    one.look_around()
    meet(one, other)


def test_what_waits_for_a_pipe_that_has_ended_is_counted_as_dropped(open_link: Any) -> None:
    one, other = open_link(A), open_link(B)
    meet(one, other)
    while len(one._pipes[B].backlog) < 3:
        one.send(Pipes((B,)), [bytes([104]) * 60_000], 0)
    sent, waiting = one.statistics().packets_out, len(one._pipes[B].backlog)
    one._pipes[B].socket.shutdown(socket.SHUT_RDWR)
    one.flush()
    assert one.statistics().dropped == waiting and one.statistics().packets_out == sent
    assert one.statistics().backlog_bytes == 0


def test_what_a_full_pipe_does_not_take_waits_and_then_is_dropped(open_link: Any) -> None:
    one, other, third = open_link(A), open_link(B), open_link(C)
    meet(one, other, third)
    burst, count = [bytes([104]) * 60_000], 0
    while not one.statistics().dropped:
        one.send(Pipes((B,)), burst, 0)
        count += 1
    assert one.statistics().backlog_bytes <= BACKLOG_BYTES_MAX
    one.send(Pipes((C,)), [b"hello"], 0)
    assert pump([third], lambda: third.statistics().packets_in)[0][0] == b"hello"
    pump([one, other], lambda: other.statistics().packets_in == count - 1)
    assert one.statistics().backlog_bytes == 0


@pytest.mark.parametrize(
    "packet", [b"x", b"GET / HTTP/1.0\r\n\r\n", bytes(60), b"\xff\x02hu" + bytes(100)]
)
def test_who_does_not_greet_is_refused(open_link: Any, directory: Path, packet: bytes) -> None:
    link = open_link(A)
    [name] = os.listdir(directory)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
        stranger.connect(str(directory / name))
        stranger.send(packet)
        pump([link], lambda: link.statistics().refused and not link._by_fileno)
        while stranger.recv(100):
            pass  # Our greeting, then the end.
    assert not link.opened and not link.closed


def test_who_says_nothing_is_let_go(open_link: Any, directory: Path) -> None:
    link = open_link(A)
    [name] = os.listdir(directory)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
        stranger.connect(str(directory / name))
        pump([link], lambda: link._by_fileno)
        for _ in range(LOOKS_MAX):
            link.look_around()
        assert link._by_fileno
        link.look_around()
        link.sweep()
        assert not link._by_fileno and link.statistics().refused == 1
        while stranger.recv(100):
            pass


def test_socket_of_a_killed_node_of_another_domain_is_removed_and_who_lives_is_left_alone(
    open_link: Any, directory: Path
) -> None:
    stale = directory / f"{DOMAIN + 1:08x}{crc32(CHANNEL.encode()):08x}-{B.hex()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
        dead.bind(str(stale))
    alive = open_link(C, domain=DOMAIN + 1)
    open_link(A)
    assert not stale.exists()
    names = [path.name for path in directory.iterdir()]
    assert any(name.endswith(C.hex()) for name in names)
    assert select.select([alive.fileno()], [], [], 0)[0] == []


def test_socket_of_a_killed_node_is_removed(open_link: Any, directory: Path) -> None:
    stale = directory / f"{DOMAIN:08x}{crc32(CHANNEL.encode()):08x}-{B.hex()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
        dead.bind(str(stale))
    link = open_link(A)
    assert not stale.exists() and link.statistics().pipes == 0


def test_process_of_another_user_is_refused(
    open_link: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = open_link(A)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    other = open_link(B)
    other.receive()
    one.receive()
    assert other.statistics().refused == 1 and one.statistics().pipes == 0


def test_runtime_directory_is_for_this_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUBBUB_RUNTIME_DIR", str(tmp_path / "run"))
    assert runtime_directory().stat().st_mode & 0o777 == 0o700
    (tmp_path / "run").chmod(0o755)
    with pytest.raises(LinkError, match="mode 0700"):
        runtime_directory()
    monkeypatch.setenv("HUBBUB_RUNTIME_DIR", "/proc/nowhere/x")
    with pytest.raises(LinkError, match="no runtime directory"):
        runtime_directory()


def test_directory_with_too_long_a_name_is_refused(directory: Path) -> None:
    deep = directory / ("x" * 60)
    deep.mkdir()
    with pytest.raises(LinkError, match="too long"):
        LocalLink(A, DOMAIN, CHANNEL, deep)

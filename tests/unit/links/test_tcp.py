"""Pipes by TCP between links of one process: who may connect, what arrives, and how it ends."""

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any
from zlib import crc32

import pytest

from hubbub.errors import ConfigurationError, LinkError
from hubbub.links.dialling import HostAndPort, Target
from hubbub.links.listening import ListenAt, open_listener
from hubbub.links.pipes import BACKLOG_BYTES_MAX, LOOKS_MAX
from hubbub.links.tcp import TcpLink
from hubbub.protocol.burst import FarPipes, Pipes
from tests.integration.link_probe import free_port

A, B, C = (bytes([number]) * 20 for number in (1, 2, 3))
DOMAIN, CHANNEL = 7, "239.1.2.3:4567"
HOST = "127.0.0.1"
PATIENCE_S = 20.0
FRAME = b"h" * 1000


@pytest.fixture
def open_link() -> Iterator[Callable[..., TcpLink]]:
    links: list[TcpLink] = []

    def open_one(key: bytes, *peers: TcpLink, domain: int = DOMAIN, port: int = 0) -> TcpLink:
        listener = open_listener(HOST, ListenAt(HOST, port), 0)
        named = [HostAndPort(HOST, port_of(peer)) for peer in peers]
        links.append(
            TcpLink(key, domain, CHANNEL, listener.socket, named, Random(7), time.monotonic_ns)
        )
        return links[-1]

    yield open_one
    for link in links:
        link.close()


def port_of(link: TcpLink) -> int:
    return int(link.address_text.rpartition(":")[2])


def serve(*links: TcpLink) -> list[tuple[bytes, int, Any]]:
    received: list[tuple[bytes, int, Any]] = []
    for link in links:
        deadline_ns = link.deadline()
        if deadline_ns is not None and time.monotonic_ns() >= deadline_ns:
            link.advance(time.monotonic_ns())
        received += link.receive()
        if link.has_room:
            link.flush()
        link.sweep()
    return received


def pump(links: list[TcpLink], is_done: Callable[[], Any]) -> list[tuple[bytes, int, Any]]:
    """Serve links until something is so; return what they received."""
    received: list[tuple[bytes, int, Any]] = []
    end_s = time.monotonic() + PATIENCE_S
    while not is_done():
        assert time.monotonic() < end_s, "it did not happen"
        received += serve(*links)
    return received


def meet(*links: TcpLink) -> None:
    pump(list(links), lambda: all(link.statistics().pipes for link in links))
    for link in links:
        link.opened.clear()


@pytest.mark.parametrize("segment_bytes", [0, 1000])
def test_a_burst_arrives_as_it_was_sent_and_says_by_what(
    open_link: Any, segment_bytes: int
) -> None:
    one = open_link(A)
    other = open_link(B, one)
    pump([one, other], lambda: one.opened and other.opened)
    [pipe] = other.opened
    assert pipe == FarPipes((A,)) and pipe.place == one.address_text
    meet(one, other)
    one.send(Pipes((B,)), [FRAME, memoryview(b"h" * 700)], segment_bytes)
    received = pump([one, other], lambda: other.statistics().packets_in)
    assert received == [(b"h" * 1700, segment_bytes, FarPipes((A,)))]
    assert received[0][2].link == "tcp"


def test_both_that_call_each_other_keep_one_and_the_same_pipe(open_link: Any) -> None:
    port = free_port()
    one = open_link(A, port=port)
    other = open_link(B, one)
    one._dialler.targets.extend(_target_of(other))
    pump([one, other], lambda: all(is_alone(link) for link in (one, other)))
    for _ in range(50):
        serve(one, other)
    assert is_alone(one) and is_alone(other)
    assert one._pipes[B].is_ours and not other._pipes[A].is_ours, "the smaller key's"
    assert len(one.opened) == len(other.opened) == 1, "told once"
    one.send(Pipes((B,)), [FRAME], 0)
    other.send(Pipes((A,)), [FRAME], 0)
    pump([one, other], lambda: one.statistics().packets_in and other.statistics().packets_in)


def _target_of(link: TcpLink) -> Any:
    return [Target(HOST, port_of(link))]


def is_alone(link: TcpLink) -> bool:
    """Tell whether there is one pipe and nothing else."""
    return len(link._by_fileno) == len(link._pipes) == 1 and not link.statistics().calls


def test_node_that_is_named_in_its_own_list_does_not_talk_to_itself(open_link: Any) -> None:
    link = open_link(A, port=free_port())
    link._dialler.targets.extend(_target_of(link))
    pump([link], lambda: link._dialler.targets[0].key == A)
    for _ in range(50):
        serve(link)
    assert not link._by_fileno and not link.opened and link.deadline() is None
    assert link.statistics().refused == 0


def test_another_domain_is_refused_and_called_ever_less_often(open_link: Any) -> None:
    one = open_link(A)
    other = open_link(B, one, domain=DOMAIN + 1)
    pump([one, other], lambda: one.statistics().refused and other.statistics().refused)
    pump([one, other], lambda: other._dialler.targets[0].interval_ns > 200_000_000)
    assert not one.opened and not other.opened


def test_peer_that_comes_back_is_called_again(open_link: Any) -> None:
    port = free_port()
    one = open_link(A, port=port)
    other = open_link(B, one)
    meet(one, other)
    one.close()
    pump([other], lambda: other.closed)
    assert list(other.closed) == [(A, False)], "who closes a connection may live"
    again = open_link(C, port=port)
    pump([again, other], lambda: again.opened and other.opened)
    assert list(other.opened) == [FarPipes((C,))]


def test_end_is_told_after_what_was_sent_before_it(open_link: Any) -> None:
    one = open_link(A)
    other = open_link(B, one)
    meet(one, other)
    other.send(Pipes((A,)), [FRAME], 0)
    other.close()
    received = pump([one], lambda: one.closed)
    assert [data for data, _, _ in received] == [FRAME]
    one.send(Pipes((B,)), [FRAME], 0)
    assert one.statistics().dropped == 1


def test_what_waits_for_a_pipe_that_has_ended_is_counted_as_dropped(open_link: Any) -> None:
    one = open_link(A)
    other = open_link(B, one)
    meet(one, other)
    while len(one._pipes[B].backlog) < 3:
        one.send(Pipes((B,)), [bytes([104]) * 60_000], 0)
    sent, waiting = one.statistics().packets_out, len(one._pipes[B].backlog)
    one._pipes[B].socket.shutdown(socket.SHUT_RDWR)
    one.flush()
    assert one.statistics().dropped == waiting and one.statistics().packets_out == sent
    assert one.statistics().backlog_bytes == 0


def test_what_a_full_pipe_does_not_take_waits_and_then_is_dropped_whole(open_link: Any) -> None:
    one = open_link(A)
    other, third = open_link(B, one), open_link(C, one)
    pump([one, other, third], lambda: len(one.opened) == 2)
    bursts, count = [bytes([number]) * 60_000 for number in range(256)], 0
    while not one.statistics().dropped:
        one.send(Pipes((B,)), [bursts[count % 256]], 0)
        count += 1
    assert one.statistics().backlog_bytes <= BACKLOG_BYTES_MAX + 60_000
    one.send(Pipes((C,)), [FRAME], 0)
    [(data, _, _)] = pump([third], lambda: third.statistics().packets_in)
    assert data == FRAME, "no other pipe notices"
    received = pump([one, other], lambda: other.statistics().packets_in == count - 1)
    assert [data for data, _, _ in received] == [bursts[at % 256] for at in range(count - 1)]
    assert one.statistics().backlog_bytes == 0


GREETING = b"\xff\x04hu" + struct.pack("!BII", 1, DOMAIN, crc32(CHANNEL.encode()))


@pytest.mark.parametrize(
    "said",
    [
        b"x", b"GET / HTTP/1.0\r\n\r\n", bytes(60), b"\xff\x04hu\x02", GREETING[:-1] + b"x",
        GREETING + C + struct.pack("!IH", 2**32 - 1, 0), GREETING + C + struct.pack("!IH", 0, 0),
        GREETING + C + struct.pack("!IH", 500, 3) + bytes(500),
    ],
)  # fmt: skip
def test_who_speaks_otherwise_is_refused_at_once(open_link: Any, said: bytes) -> None:
    link = open_link(A)
    with socket.create_connection((HOST, port_of(link))) as stranger:
        stranger.sendall(said)
        pump([link], lambda: link.statistics().refused and not link._by_fileno)
        stranger.settimeout(PATIENCE_S)
        with contextlib.suppress(ConnectionError):
            while stranger.recv(100):
                pass  # Our greeting, then the end.
    assert link.statistics().refused == 1


@pytest.mark.parametrize("said", [b"", GREETING[:5], GREETING + C[:-1]])
def test_who_says_nothing_or_too_little_is_let_go_after_a_while(
    open_link: Any, said: bytes
) -> None:
    link = open_link(A)
    with socket.create_connection((HOST, port_of(link))) as stranger:
        stranger.sendall(said)
        pump([link], lambda: link._by_fileno)
        for _ in range(LOOKS_MAX):
            link.look_around()
            serve(link)
        assert link._by_fileno
        link.look_around()
        link.sweep()
        assert not link._by_fileno and link.statistics().refused == 1


def test_greeting_may_come_in_pieces_and_with_what_follows(open_link: Any) -> None:
    link = open_link(A)
    record = struct.pack("!IH", len(FRAME), 0) + FRAME
    stream = GREETING + C + record * 3
    with socket.create_connection((HOST, port_of(link))) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        received = []
        for piece in (stream[:1], stream[1:20], stream[20:40], stream[40:2000], stream[2000:]):
            peer.sendall(piece)
            end_s = time.monotonic() + 0.02
            while time.monotonic() < end_s:
                received += serve(link)
        received += pump([link], lambda: link.statistics().packets_in == 3)
        assert [data for data, _, _ in received] == [FRAME] * 3


def test_connections_have_no_delay_and_ask_after_each_other(open_link: Any) -> None:
    one = open_link(A)
    other = open_link(B, one)
    meet(one, other)
    for pipe in (*one._pipes.values(), *other._pipes.values()):
        assert pipe.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert pipe.socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_second_node_of_a_host_listens_elsewhere_unless_it_was_told_where() -> None:
    port = free_port()
    first = open_listener(HOST, ListenAt(), port).socket
    second = open_listener(HOST, ListenAt(), port).socket
    assert first.getsockname() == (HOST, port) and second.getsockname()[1] not in (0, port)
    with pytest.raises(LinkError, match=f"cannot listen at {HOST} port {port}: Address already"):
        open_listener(HOST, ListenAt("", port), 1)
    with pytest.raises(LinkError, match=r"cannot listen at 203\.0\.113\.7"):
        open_listener(HOST, ListenAt("203.0.113.7"), port)
    with pytest.raises(ConfigurationError, match="'nowhere0' is not there"):
        open_listener("nowhere0", ListenAt(), port)
    first.close()
    second.close()


def test_listener_on_all_interfaces_hears_all() -> None:
    listener = open_listener("all", ListenAt("", 0), 1).socket
    assert listener.getsockname()[0] == "0.0.0.0"
    listener.close()

"""Frames of samples take a short way once their header is known, and fare as on the long one."""

import pytest

from hubbub.limits import MS, SECOND
from hubbub.wire.header import RESPONSE
from hubbub.wire.timed import Response, encode_response, make_origin
from tests.harness import Lan
from tests.unit.protocol.timetrigger.cars import SPEED, WALL, Car


class Bench:
    """A car that takes samples, another that sends them, and frames by hand."""

    def __init__(self) -> None:
        self.lan = Lan()
        self.user, self.other = Car(self.lan), Car(self.lan)
        self.consumer = self.user.consume(100)
        self.lan.run(100 * MS)
        self.core = self.user.node.core
        self.sequence = 0
        self.closely = 0
        self.core.lanes._look_closely = self._look_closely

    def _look_closely(self, *arguments: object) -> None:
        self.closely += 1
        self.core._receive_frame(*arguments)  # type: ignore[arg-type]

    def frame(self, **changes: object) -> bytes:
        """Make a frame with the sample of the next slot."""
        self.sequence += 1
        tick_ns = WALL + 10 * SECOND + self.sequence * 100 * MS
        response = Response(
            make_origin(self.other.id, 9), 0, SPEED, 1, 0, 0, self.sequence, tick_ns, tick_ns, 0,
            b"13.9",
        )  # fmt: skip
        endpoint = self.other.node.core.endpoint
        body = encode_response(response._replace(**changes))  # type: ignore[arg-type]
        endpoint.send(None, RESPONSE, 0, body)
        return b"".join(endpoint.control.pop().buffers)

    def receive(self, data: bytes, step: int = 0) -> None:
        self.core.receive(self.lan.now, data, step, self.other.node.address)
        self.user.node.drain(self.lan.now)


def test_only_the_first_frame_of_a_peer_is_looked_at_closely() -> None:
    bench = Bench()
    frames = [bench.frame() for _ in range(5)]
    bench.receive(frames[0])
    bench.receive(b"".join(frames[1:]), len(frames[0]))
    assert (bench.closely, bench.consumer.served, bench.core.endpoint.drops.total()) == (1, 5, 0)
    assert [one.response.sequence for one in bench.user.got(bench.consumer)] == [1, 2, 3, 4, 5]
    assert bench.user.got(bench.consumer)[4].source == bench.core.peers[
        bench.other.node.core.endpoint.key].source  # fmt: skip


@pytest.mark.parametrize("at", [0, 3, 8, 20, 46, 60, 67, 90, 133])
def test_damaged_frame_is_dropped_wherever_it_is_damaged(at: int) -> None:
    bench = Bench()
    bench.receive(bench.frame())
    good = bench.frame()
    bad = bytearray(good)
    bad[at] ^= 0x40
    drops = bench.core.endpoint.drops
    bench.receive(bytes(bad))
    assert drops.total() == 1 and bench.consumer.served == 1
    bench.receive(good)
    assert drops.total() == 1 and bench.consumer.served == 2


def test_frame_of_a_peer_that_was_lost_or_has_moved_is_looked_at_closely() -> None:
    bench = Bench()
    bench.receive(bench.frame())
    peer = bench.core.peers[bench.other.node.core.endpoint.key]
    bench.core.receive(bench.lan.now, bench.frame(), 0, ("10.0.0.99", 4711))
    assert (bench.closely, peer.address) == (2, ("10.0.0.99", 4711))
    peer.lost_ns = bench.lan.now
    bench.receive(bench.frame())
    assert bench.closely == 3 and peer.lost_ns is None and bench.consumer.served == 3


def test_frame_that_is_cut_short_is_malformed() -> None:
    bench = Bench()
    bench.receive(bench.frame())
    endpoint = bench.other.node.core.endpoint
    for body in (b"", b"\0" * 59, bench.frame()[70:-1]):
        endpoint.send(None, RESPONSE, 0, body)
        bench.receive(b"".join(endpoint.control.pop().buffers))
    assert bench.core.endpoint.drops["malformed"] == 3
    assert bench.consumer.served == 1

"""Sending when the kernel has no room, cannot segment or refuses: nothing is sent twice."""

import errno
import os
from collections.abc import Callable
from typing import Any, cast

import pytest

from hubbub.links.faults import FaultInjector, Faults, split
from hubbub.links.outlet import BUFFERS_MAX, Outlet
from hubbub.links.socket_pair import SocketPair
from hubbub.protocol.burst import Burst

GROUP = ("239.255.72.66", 7266)
PEER = ("192.0.2.9", 5000)


class FakeSocket:
    """The kernel's side of a datagram socket: takes frames, or raises the next error planned."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, Any]] = []
        self.frames: list[bytes] = []
        self.plan: list[int] = []
        self.segment_error = 0

    def sendto(self, data: bytes, target: Any) -> int:
        return self.sendmsg([data], (), 0, target)

    def sendmsg(self, buffers: list[bytes], control: Any, flags: int, target: Any) -> int:
        assert len(buffers) <= BUFFERS_MAX
        data = b"".join(buffers)
        segment_bytes = int.from_bytes(control[0][2], "little") if control else 0
        code = self.plan.pop(0) if self.plan else 0
        if segment_bytes and self.segment_error:
            code = self.segment_error
        if code:
            raise OSError(code, os.strerror(code))
        self.calls.append((segment_bytes, target))
        self.frames += split(data, segment_bytes)
        return len(data)


class FakePair:
    """What the outlet needs of a pair of sockets."""

    def __init__(self, *, has_gso: bool = True) -> None:
        self.unicast = FakeSocket()
        self.destination = GROUP
        self.has_gso = has_gso
        self.has_gro = True
        self.looped_back = 0
        self.send_error = ""


def outlet_of(*pairs: FakePair, faults: FaultInjector | None = None) -> Outlet:
    known = cast("list[SocketPair]", list(pairs))
    return Outlet(known, lambda peer: known[-1], faults, clock=lambda: 0)


def numbered(count: int, size_bytes: int = 100) -> list[bytes]:
    return [number.to_bytes(size_bytes, "big") for number in range(count)]


def burst_of(frames: list[bytes], destination: Any = None) -> Burst:
    return Burst(destination, list(frames), len(frames[0]) if len(frames) > 1 else 0)


def offer(outlet: Outlet, burst: Burst) -> int:
    """Offer a burst until it is taken, as a caller does; return how often."""
    for attempt in range(1, 100):
        if outlet.send(burst):
            return attempt
    raise AssertionError("never taken")


def test_a_burst_leaves_in_one_call() -> None:
    pair = FakePair()
    outlet = outlet_of(pair)

    assert outlet.send(burst_of([*numbered(5), b"short"]))

    assert pair.unicast.calls == [(100, GROUP)]
    assert pair.unicast.frames == [*numbered(5), b"short"]
    assert (outlet.frames, outlet.size_bytes) == (6, 505)
    assert pair.looped_back == 1


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.ENOBUFS])
def test_without_room_nothing_is_taken_and_the_same_burst_goes_once(code: int) -> None:
    pair = FakePair()
    outlet = outlet_of(pair)
    pair.unicast.plan = [code, code]
    burst = burst_of(numbered(3))

    assert offer(outlet, burst) == 3

    assert pair.unicast.frames == numbered(3)
    assert outlet.would_block == 2


def test_frame_by_frame_the_rest_is_sent_when_there_is_room_and_nothing_twice() -> None:
    pair = FakePair(has_gso=False)
    outlet = outlet_of(pair)
    pair.unicast.plan = [0, 0, errno.EAGAIN, 0, errno.EAGAIN]
    burst = burst_of(numbered(6))

    assert offer(outlet, burst) == 3

    assert pair.unicast.frames == numbered(6)
    assert {segment_bytes for segment_bytes, _ in pair.unicast.calls} == {0}
    assert outlet.send(burst_of([b"next"]))
    assert pair.unicast.frames == [*numbered(6), b"next"]


def test_another_burst_waits_for_the_rest_and_the_first_is_not_sent_again() -> None:
    pair = FakePair(has_gso=False)
    outlet = outlet_of(pair)
    pair.unicast.plan = [0, errno.EAGAIN, errno.EAGAIN]
    first, second = burst_of(numbered(3)), burst_of([b"status"], PEER)

    assert not outlet.send(first)
    assert not outlet.send(second)
    assert outlet.send(second)
    assert outlet.send(first)

    assert pair.unicast.frames == [*numbered(3), b"status"]
    assert outlet.send(first)
    assert pair.unicast.frames == [*numbered(3), b"status", *numbered(3)]


def test_a_second_burst_cut_short_is_kept_whole_although_the_first_is_unacknowledged() -> None:
    pair = FakePair(has_gso=False)
    outlet = outlet_of(pair)
    first, second = burst_of(numbered(2)), burst_of([b"a", b"b"])
    pair.unicast.plan = [0, errno.EAGAIN, 0, 0, errno.EAGAIN]

    assert not outlet.send(first)
    assert outlet.send(second)
    assert outlet.send(first)

    assert pair.unicast.frames == [*numbered(2), b"a", b"b"]


@pytest.mark.parametrize("code", [errno.EMSGSIZE, errno.EINVAL])
def test_a_burst_the_kernel_cannot_segment_goes_frame_by_frame(code: int) -> None:
    pair = FakePair()
    outlet = outlet_of(pair)
    pair.unicast.segment_error = code

    assert outlet.send(burst_of(numbered(4)))

    assert pair.unicast.frames == numbered(4)
    assert outlet.segmentation_refused == 1
    assert outlet.errors == 0
    assert pair.has_gso


def test_a_device_without_checksums_ends_segmentation_for_good() -> None:
    pair = FakePair()
    outlet = outlet_of(pair)
    pair.unicast.segment_error = errno.EIO

    assert outlet.send(burst_of(numbered(2)))
    assert outlet.send(burst_of(numbered(2)))

    assert not pair.has_gso
    assert outlet.segmentation_refused == 1
    assert pair.unicast.frames == numbered(2) * 2


@pytest.mark.parametrize("code", [errno.ENETDOWN, errno.ENETUNREACH, errno.EPERM, errno.ENODEV])
def test_another_refusal_is_counted_remembered_and_done_with(code: int) -> None:
    pair = FakePair()
    outlet = outlet_of(pair)
    pair.unicast.plan = [code]

    assert outlet.send(burst_of([b"lost"]))
    assert outlet.errors == 1
    assert pair.send_error == os.strerror(code)

    assert outlet.send(burst_of([b"sent"]))
    assert pair.send_error == ""
    assert pair.unicast.frames == [b"sent"]


def test_one_peer_that_is_gone_says_nothing_about_the_link() -> None:
    pair = FakePair()
    outlet = outlet_of(pair)
    pair.unicast.plan = [errno.ECONNREFUSED, errno.EHOSTUNREACH]

    assert outlet.send(burst_of([b"x"], PEER))
    assert outlet.send(burst_of([b"x"], PEER))

    assert outlet.errors == 2
    assert pair.send_error == ""


def test_the_group_is_served_on_every_interface_and_a_peer_on_its_own() -> None:
    one, two = FakePair(), FakePair()
    outlet = outlet_of(one, two)

    assert outlet.send(burst_of(numbered(3)))
    assert outlet.send(burst_of([b"answer"], PEER))

    assert one.unicast.frames == numbered(3)
    assert two.unicast.frames == [*numbered(3), b"answer"]


def test_frame_by_frame_the_order_is_the_same_on_every_interface() -> None:
    one, two = FakePair(has_gso=False), FakePair()
    two.unicast.segment_error = errno.EMSGSIZE
    outlet = outlet_of(one, two)

    assert outlet.send(burst_of(numbered(5)))

    assert one.unicast.frames == two.unicast.frames == numbered(5)


def test_an_interface_without_room_does_not_make_the_others_send_twice() -> None:
    one, two = FakePair(), FakePair()
    outlet = outlet_of(one, two)
    two.unicast.plan = [errno.EAGAIN]
    burst = burst_of(numbered(3))

    assert not outlet.send(burst)
    assert outlet.blocked_pair() is cast("SocketPair", two)
    assert outlet.send(burst)

    assert one.unicast.frames == two.unicast.frames == numbered(3)


def test_more_buffers_than_a_call_takes_are_joined() -> None:
    pair = FakePair()

    assert outlet_of(pair).send(burst_of(numbered(BUFFERS_MAX + 1, size_bytes=4)))

    assert pair.unicast.frames == numbered(BUFFERS_MAX + 1, size_bytes=4)


def test_faults_are_drawn_once_although_a_burst_is_offered_often() -> None:
    def frames_sent(plan: list[int], release: Callable[[Outlet], None]) -> list[bytes]:
        pair = FakePair()
        outlet = outlet_of(pair, faults=Faults(loss=0.3, reorder=0.2, seed=5).injector("out"))
        pair.unicast.plan = plan
        offer(outlet, burst_of(numbered(40)))
        release(outlet)
        return pair.unicast.frames

    smooth = frames_sent([], lambda outlet: outlet.advance(1 << 40))
    rough = frames_sent([errno.EAGAIN] * 3, lambda outlet: outlet.advance(1 << 40))

    assert smooth == rough
    assert 20 < len(smooth) < 40


def test_what_faults_leave_still_goes_in_bursts() -> None:
    pair = FakePair()
    outlet = outlet_of(pair, faults=Faults(loss=0.05, seed=5).injector("out"))

    assert outlet.send(burst_of(numbered(40)))

    assert len(pair.unicast.calls) == 1
    assert 30 < len(pair.unicast.frames) < 40

"""Trees: who passes a message on, who takes the place of one that is late, and how many frames."""

from random import Random

import pytest

from hubbub.limits import (
    DIRECT_FAN_OUT,
    HOP_TIMEOUT,
    HOP_WINDOW_BYTES_MAX,
    MS,
    SUBSCRIBERS_MAX,
    TREE_FAN_OUT,
    TREE_NODES_PER_FRAME,
)
from hubbub.protocol.rendezvous.listing import Line
from hubbub.protocol.rendezvous.rendezvous import Rendezvous
from hubbub.protocol.rendezvous.seat import NEVER, Place
from hubbub.wire.header import HEADER_BYTES, SERVICE
from hubbub.wire.services import (
    INFO,
    TAKEN,
    Answer,
    Extra,
    Message,
    Record,
    Request,
    decode_request,
    service_key,
)

KEY = service_key("news")
ORIGIN = b"publisher..."
_KIND_OFFSET = 3


def name(number: int) -> bytes:
    return number.to_bytes(12, "big")


def place_of(number: int) -> Place:
    return (f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 7266)


def message(sequence: int = 1, payload: bytes = b"21", extra: Extra | None = None) -> Request:
    extra = Extra() if extra is None else extra
    return Request(0, 0, 0, ORIGIN, 1, sequence, 1, 0, sequence, Message(INFO, KEY, payload), extra)


class Head:
    """One node that knows many, and what it sends to whom."""

    def __init__(self, count: int) -> None:
        self.now = 0
        self.nodes = [name(number) for number in range(1, count + 1)]
        self.machine = Rendezvous(0, b"head........", 1, 7, Random(1), seeds=[])
        for number, node in enumerate(self.nodes, 1):
            self.machine.swim.hear_of(0, Record(node, *place_of(number), 1, number, 0))
        self.machine.swim.due_ns = NEVER
        self.spread = self.machine.manager.spread
        self._at = {place_of(number): node for number, node in enumerate(self.nodes, 1)}
        self.take_out()

    def send(self, sequence: int = 1, payload: bytes = b"21") -> list[tuple[bytes, Request]]:
        lines = [Line(node, 1, True, 0, None, 0) for node in self.nodes]
        self.spread.send(self.now, lines, message(sequence, payload))
        return self.take_out()

    def pass_on(self, info: Request) -> list[tuple[bytes, Request]]:
        self.machine.manager.pass_on(self.now, info)
        return self.take_out()

    def wait(self, time_ns: int) -> list[tuple[bytes, Request]]:
        self.now += time_ns
        self.machine.hops.advance(self.now)
        return self.take_out()

    def take_out(self) -> list[tuple[bytes, Request]]:
        found = []
        while self.machine.out:
            place, frame = self.machine.out.popleft()
            if frame[_KIND_OFFSET] == SERVICE:
                request = decode_request(frame[HEADER_BYTES:])
                assert request is not None
                found.append((self._at[place], request))
        return found

    def acknowledge(self, frames: list[tuple[bytes, Request]], *, but: bytes = b"") -> None:
        for node, request in frames:
            if node != but:
                self.machine.hops.take(self.now, node, [Answer(request.hop, TAKEN)])


def reached(frames: list[tuple[bytes, Request]]) -> list[bytes]:
    return sorted(
        {node for node, _ in frames} | {n for _, info in frames for n in info.extra.nodes}
    )


# Those who are late.


def test_those_below_one_that_is_late_are_left_to_the_next_of_them_once() -> None:
    head = Head(100)
    frames = head.send()
    late, info = frames[3]
    head.acknowledge(frames, but=late)
    assert head.wait(HOP_TIMEOUT - 1) == []
    again = head.wait(1)
    follower, *rest = info.extra.nodes
    assert sorted((node, one.extra.nodes) for node, one in again) == sorted(
        [(late, info.extra.nodes), (follower, rest)]
    )
    head.acknowledge(again, but=late)
    while head.machine.hops.tracks:  # Also when it is given up.
        assert {node for node, _ in head.wait(HOP_TIMEOUT)} <= {late}
    assert head.machine.seat.counters["branches_repaired"] == 1


def test_nothing_is_added_where_all_acknowledge_in_time() -> None:
    head = Head(100)
    frames = head.send()
    head.now += HOP_TIMEOUT - 1
    head.acknowledge(frames)
    assert head.wait(1) == []
    assert head.send(2) and head.machine.seat.counters["branches_repaired"] == 0


def test_who_acknowledges_nothing_is_to_pass_nothing_on_until_it_does() -> None:
    head = Head(100)
    frames = head.send()
    late = frames[0][0]
    head.acknowledge(frames, but=late)
    head.acknowledge(head.wait(HOP_TIMEOUT), but=late)
    following = head.send(2)
    assert late not in {node for node, _ in following}
    assert reached(following) == sorted(head.nodes)
    head.acknowledge(following)
    head.acknowledge(frames[:1])
    assert late in {node for node, _ in head.send(3)}


def test_one_frame_that_is_lost_among_many_does_not_make_a_node_silent() -> None:
    head = Head(100)
    frames = head.send()
    head.acknowledge(frames[1:])
    head.now += HOP_TIMEOUT // 2
    head.acknowledge(head.send(2))
    assert len(head.wait(HOP_TIMEOUT // 2)) == 2
    assert not head.machine.hops.silent


def test_what_waits_for_a_node_that_acknowledges_nothing_goes_round_it_too() -> None:
    head = Head(100)
    payload, late = bytes(HOP_WINDOW_BYTES_MAX // 4), head.nodes[0]
    for sequence in range(1, 11):
        head.acknowledge(head.send(sequence, payload), but=late)
    below = head.nodes[8::8]
    passed, frames = [], head.wait(HOP_TIMEOUT)
    while frames:
        passed += [info for node, info in frames if node == below[0]]
        head.acknowledge(frames, but=late)  # There is no room for all of them at once.
        frames = [frame for frame in head.take_out() if frame[0] != late]
    assert [info.sequence for info in passed] == list(range(1, 11))
    assert all(info.extra.nodes == below[1:] for info in passed)


def test_follower_that_is_late_is_followed_by_the_next() -> None:
    head = Head(100)
    frames = head.send()
    late, info = frames[0]
    head.acknowledge(frames[1:])
    for _ in range(3):
        head.wait(HOP_TIMEOUT)
    assert next(node for node, _ in head.send(2)) not in {late, *info.extra.nodes[:3]}
    counters = head.machine.seat.counters
    assert counters["branches_repaired"] == 3


@pytest.mark.parametrize("is_part", [0, 1])
def test_nodes_that_are_named_twice_or_that_nobody_knows_are_no_harm(is_part: int) -> None:
    head = Head(4)
    strangers = [name(number) for number in range(1000, 1700)]
    nodes = [*strangers, *head.nodes, *head.nodes, *strangers]
    frames = head.pass_on(message(extra=Extra(nodes=nodes))._replace(hops=is_part))
    assert set(head.nodes) <= set(reached(frames))
    for _ in range(20):
        assert len(head.wait(HOP_TIMEOUT)) < 20 * TREE_FAN_OUT


def test_message_on_another_subject_with_the_same_number_is_passed_on() -> None:
    head = Head(4)
    for subject in ("/a", "/b"):
        extra = Extra(nodes=head.nodes, subject=subject)
        assert len(head.pass_on(message(extra=extra))) == 4
        assert head.pass_on(message(extra=extra)) == []  # It came again.


# Those who are many.


def test_every_frame_of_a_large_tree_is_left_whole_to_the_first_that_it_names() -> None:
    head = Head(SUBSCRIBERS_MAX)
    frames = head.send()
    assert len({node for node, _ in frames}) == DIRECT_FAN_OUT
    assert reached(frames) == head.nodes
    first = frames[0][0]
    parts = [info for node, info in frames if node == first]
    assert 1 < len(parts) <= TREE_FAN_OUT
    for info in parts:
        [(node, passed)] = head.pass_on(info)
        assert [node, *passed.extra.nodes] == info.extra.nodes
        assert len(info.extra.nodes) <= TREE_NODES_PER_FRAME
        assert not passed.hops


def test_all_frames_of_one_that_is_late_go_to_the_same_follower() -> None:
    head = Head(4000)
    frames = head.send()
    late = frames[0][0]
    head.acknowledge(frames, but=late)
    again = head.wait(HOP_TIMEOUT)
    assert len({node for node, _ in again} - {late}) == 1
    lost = {node for one, info in frames if one == late for node in info.extra.nodes}
    assert set(reached(again)) == lost | {late}
    assert head.wait(MS) == []

"""Trees: who passes a message on, who takes the place of one that is late, and how many frames."""

from random import Random

from hubbub.limits import (
    DIRECT_FAN_OUT,
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

"""Payloads that any node publishes as it got them: from when on they go on where they lie."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hubbub.links import onward
from hubbub.links.mapping import lasts
from hubbub.protocol.burst import Pipes
from tests.unit.links.ends import End

WRITER, RELAY, READER = (bytes([one]) * 20 for one in range(1, 4))
PATIENCE_S = 20.0
SIZE = 1 << 16


class Ring:
    """A writer, one that publishes what it reads, and a reader, all on one channel."""

    def __init__(self, directory: Path) -> None:
        self.writer, self.relay, self.reader = (End(k, directory) for k in (WRITER, RELAY, READER))
        self.ends = [self.writer, self.relay, self.reader]
        self.until(lambda: all(len(end.link.everybody) == 2 for end in self.ends))

    def until(self, is_so: Callable[[], Any]) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < end_s, "it did not happen"
            self.turn()

    def turn(self) -> None:
        for end in self.ends:
            end.serve()
            end.depot.advance(end.now)

    def send(self, source: End, payload: Any, target: End) -> Any:
        """Let one refer to a payload, and return what another has of it."""
        made: list[bytes] = []

        def is_referred() -> bool:
            made.extend(source.depot.refer([payload], Pipes((target.key,))))
            return bool(made)

        self.until(is_referred)
        self.until(lambda: source.key in target.depot._writers)
        target.serve()
        [view] = target.depot.resolve(source.key, made) or [None]
        assert view is not None
        return view

    def pass_on(self, number: int, target: End) -> Any:
        """Let the writer publish, the relay publish what it got, and return what comes of it."""
        return self.send(self.relay, self.send(self.writer, make(number), self.relay), target)

    def handed_on(self) -> int:
        return self.relay.depot.statistics().handed_on

    def warm(self, target: End) -> None:
        before = self.handed_on()
        for _ in range(10):
            self.pass_on(0, target)
        assert self.handed_on() > before
        self.until(lambda: self.in_use() == 0)

    def in_use(self) -> int:
        return self.writer.depot.statistics().slots_in_use

    def overwrite(self) -> None:
        for _ in range(300):
            self.writer.depot.refer([make(255)], Pipes((RELAY,)))


@pytest.fixture
def ring() -> Iterator[Ring]:
    with tempfile.TemporaryDirectory(prefix="hub") as directory:
        made = Ring(Path(directory))
        yield made
        for end in made.ends:
            end.close()


def make(number: int) -> bytes:
    return bytes([number]) * SIZE


def test_who_publishes_what_it_read_hands_it_on_once_its_writer_knows(ring: Ring) -> None:
    payload = ring.send(ring.writer, make(1), ring.relay)
    ring.relay.depot.refer([payload], Pipes((READER,)))
    assert ring.handed_on() == 0, "the writer does not know yet, and would write it again"
    assert not ring.writer.depot._readers[RELAY].hands_on
    del payload
    ring.warm(ring.reader)
    assert ring.writer.depot._readers[RELAY].hands_on
    payload = ring.pass_on(2, ring.reader)
    assert bytes(payload) == make(2)
    assert ring.in_use() == 1 and ring.relay.depot.statistics().slots_in_use == 0
    del payload
    ring.until(lambda: ring.in_use() == 0)


def test_who_hands_nothing_on_keeps_no_descriptor_and_its_death_costs_no_arena(ring: Ring) -> None:
    payload = ring.send(ring.writer, make(1), ring.relay)
    assert payload.obj.mapping.fileno == -1
    ring.writer.depot.pipe_closed(RELAY, is_dead=True)
    assert ring.writer.depot.statistics().retired == 0


def test_payload_goes_back_to_its_writer_where_it_lies(ring: Ring) -> None:
    ring.warm(ring.writer)
    before = ring.handed_on()
    held, let_go = (ring.pass_on(number, ring.writer) for number in (1, 2))
    assert ring.handed_on() == before + 2
    ring.overwrite()
    assert bytes(held) == make(1) and bytes(let_go) == make(2)
    in_use = ring.in_use()
    del let_go
    ring.until(lambda: ring.in_use() == in_use - 1)
    ring.overwrite()
    assert bytes(held) == make(1), "the writer reads it itself, and must not write it"


def test_death_of_who_hands_on_leaves_its_readers_what_they_have(ring: Ring) -> None:
    ring.warm(ring.reader)
    ring.warm(ring.writer)
    held, own = ring.pass_on(1, ring.reader), ring.pass_on(2, ring.writer)
    ring.writer.depot.pipe_closed(RELAY, is_dead=True)
    ring.reader.depot.pipe_closed(RELAY, is_dead=True)
    assert ring.writer.depot.statistics().retired == 1, "never written again"
    for _ in range(300):
        ring.writer.depot.refer([make(255)], Pipes((READER,)))
    assert bytes(held) == make(1) and bytes(own) == make(2)


def test_reader_that_stops_gets_copies_in_the_end(
    ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring.warm(ring.reader)
    monkeypatch.setattr(onward, "READER_BYTES_MAX", 3 * SIZE)
    held = [ring.pass_on(number, ring.reader) for number in range(1, 9)]
    assert ring.in_use() == 3 and ring.relay.depot.statistics().slots_in_use == 5
    assert [bytes(one) for one in held] == [make(number) for number in range(1, 9)]


def test_what_was_handed_on_is_copied_when_it_is_published_again(ring: Ring) -> None:
    ring.warm(ring.writer)
    payload = ring.pass_on(1, ring.writer)
    for _ in range(3):
        again = ring.send(ring.writer, payload, ring.reader)
        ring.turn()
    assert bytes(again) == make(1) and ring.writer.depot.statistics().handed_on == 0


def test_writer_that_offers_again_without_end_costs_one_descriptor(ring: Ring) -> None:
    ring.warm(ring.reader)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(100):
        for number in ring.writer.depot._readers[RELAY].offered:
            ring.writer.depot._send_offer(RELAY, number)
        ring.turn()
    assert len(os.listdir("/proc/self/fd")) == before
    assert ring.relay.depot.refused == 0


def test_reader_that_says_again_and_again_that_it_hands_on_is_offered_once(ring: Ring) -> None:
    ring.warm(ring.reader)
    ring.turn()
    for _ in range(100):
        ring.relay.depot._accept(WRITER, ring.relay.depot._writers[WRITER], 0)
        ring.writer.serve()
        ring.relay.link.receive()
        assert not ring.relay.link.notes


def test_views_that_are_not_all_of_a_payload_do_not_last(ring: Ring) -> None:
    payload = ring.send(ring.writer, make(1), ring.relay)
    assert lasts(payload) and lasts(memoryview(payload))
    for part in (payload[1:], payload[::-1], payload.cast("I"), payload[:-1], bytes(payload)):
        assert not lasts(part)
    assert not lasts(bytearray(SIZE)) and not lasts(memoryview(bytearray(SIZE)))

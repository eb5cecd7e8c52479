"""Payloads by reference between two depots: offers, views, giving back, and who is left behind."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hubbub.limits import (
    BLOCK_BYTES_MAX,
    STORE_BYTES_MAX,
    STORE_PATIENCE,
    STORE_WARM_BYTES,
)
from hubbub.links import depot as depots
from hubbub.links.local import Note
from hubbub.links.returns import RETURNS
from hubbub.protocol.burst import Pipes
from hubbub.wire.batch import encode_parts, encode_reference
from tests.unit.links.ends import End

A, B = bytes([1]) * 20, bytes([2]) * 20
PATIENCE_S = 20.0
PAYLOAD = bytes(range(256)) * 256


@pytest.fixture
def ends() -> Iterator[tuple[End, End]]:
    """Two ends that know each other; the first writes, the second reads."""
    with tempfile.TemporaryDirectory(prefix="hub") as directory:
        writer, reader = End(A, Path(directory)), End(B, Path(directory))
        until((writer, reader), lambda: writer.link.opened and reader.link.opened)
        yield writer, reader
        writer.close()
        reader.close()


def until(ends: tuple[End, End], is_so: Callable[[], Any]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end_s, "it did not happen"
        for end in ends:
            end.serve()


def refer(ends: tuple[End, End], payload: bytes = PAYLOAD) -> bytes:
    """Refer to a payload, once the reader has mapped the arena."""
    references: list[bytes] = []

    def is_referred() -> bool:
        references.extend(ends[0].depot.refer([payload], Pipes((B,))))
        return bool(references)

    until(ends, is_referred)
    until(ends, lambda: A in ends[1].depot._writers)
    return references[0]


def test_first_payload_goes_as_it_is_and_later_ones_by_reference(ends: tuple[End, End]) -> None:
    writer, reader = ends
    assert not writer.depot.refer([PAYLOAD], Pipes((B,))), "nobody has mapped anything yet"
    reference = refer(ends)
    payloads = reader.depot.resolve(A, [reference])
    assert payloads is not None and bytes(payloads[0]) == PAYLOAD
    assert isinstance(payloads[0], memoryview) and payloads[0].readonly


def test_what_was_read_last_is_written_next_though_other_slots_are_free(
    ends: tuple[End, End],
) -> None:
    writer, reader = ends
    refer(ends)
    route = Pipes((B,))
    references = [writer.depot.refer([PAYLOAD], route) for _ in range(8)]
    views = reader.depot.resolve(A, [packed for [packed] in references])
    assert views is not None and len(views) == 8
    del views[3]
    assert writer.depot.refer([PAYLOAD], route) == references[3]
    del views[5]
    del views[5]
    assert writer.depot.refer([PAYLOAD], route) == references[7], "the last of several"
    del views[1]
    assert writer.depot.refer([PAYLOAD], route) == references[1], "though others were free before"


def test_slot_is_free_when_the_reader_has_let_go_of_the_last_view(ends: tuple[End, End]) -> None:
    writer, reader = ends
    [payload] = reader.depot.resolve(A, [refer(ends)]) or [None]
    part = payload[10:20]
    del payload
    writer.serve()
    assert writer.depot.statistics().slots_in_use == 1 and bytes(part) == PAYLOAD[10:20]
    del part
    until(ends, lambda: writer.depot.statistics().slots_in_use == 0)


def held_of(ends: tuple[End, End], references: list[bytes]) -> list[Any]:
    """Let the reader have what these refer to, once it has mapped all that it was offered."""
    ends[1].serve()
    views = ends[1].depot.resolve(A, references)
    assert views is not None
    return views


def test_readers_wait_for_more_when_each_has_at_most_one_slot_left(ends: tuple[End, End]) -> None:
    writer, route = ends[0], Pipes((B,))
    assert writer.depot.is_read(route), "nothing was written"
    refer(ends)
    views = held_of(ends, [refer(ends) for _ in range(3)])
    while not writer.depot.is_read(route):
        assert views, "all were given back"
        views.pop()
    assert writer.depot.statistics().slots_in_use <= 2


def test_writer_keeps_to_warm_memory_while_its_readers_get_on(ends: tuple[End, End]) -> None:
    writer = ends[0]
    large, route = bytes(STORE_WARM_BYTES // 4), Pipes((B,))
    views = held_of(ends, [refer(ends, large) for _ in range(4)])
    assert writer.depot.has_room(route)
    views += held_of(ends, [refer(ends, large)])
    assert not writer.depot.has_room(route)
    views.pop(0)
    assert writer.depot.has_room(route), "what was given back is seen at once"
    assert writer.depot.statistics().arenas <= 2, "of 16 and 32 MiB"


def test_writer_uses_more_memory_when_waiting_is_in_vain(ends: tuple[End, End]) -> None:
    writer = ends[0]
    large, route = bytes(STORE_WARM_BYTES // 4), Pipes((B,))
    views = held_of(ends, [refer(ends, large) for _ in range(5)])
    assert not writer.depot.has_room(route)
    writer.depot.go_on()
    for _ in range(4):
        assert writer.depot.has_room(route)
        views += held_of(ends, [refer(ends, large)])
    refer(ends, large)
    assert not writer.depot.has_room(route), "but not much more"
    views.clear()
    assert writer.depot.has_room(route)


def test_writer_does_not_wait_for_one_reader_when_another_keeps_up(
    ends: tuple[End, End],
) -> None:
    writer = ends[0]
    large = bytes(STORE_WARM_BYTES // 4)
    held = held_of(ends, [refer(ends, large) for _ in range(5)])
    assert held and not writer.depot.has_room(Pipes((B,)))
    assert writer.depot.has_room(Pipes((B, bytes(20)))), "the other one holds nothing"


def test_answer_that_found_no_room_is_given_again(
    ends: tuple[End, End], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, reader = ends
    with monkeypatch.context() as patch:
        patch.setattr(reader.link, "send_note", lambda *note: False)
        writer.depot.refer([PAYLOAD], Pipes((B,)))
        until(ends, lambda: A in reader.depot._writers)
    assert not writer.depot.refer([PAYLOAD], Pipes((B,)))
    reader.depot.advance(reader.depot.deadline() or 0)
    until(ends, lambda: writer.depot.refer([PAYLOAD], Pipes((B,))))
    assert reader.depot.deadline() is None


def test_ring_of_a_reader_that_is_none_is_refused_and_closed(ends: tuple[End, End]) -> None:
    writer, _ = ends
    inlet, outlet = os.pipe()
    writer.depot._readers[B] = depots._Reader()
    writer.depot.take(Note(B, depots._HEAD.pack(depots._TAKEN, 0, 0), inlet))
    os.close(outlet)
    assert not Path(f"/proc/self/fd/{inlet}").exists()
    assert writer.depot.statistics().not_taken == 1
    assert not writer.depot.refer([PAYLOAD], Pipes((B,)))


def test_ring_that_was_overrun_is_given_up(ends: tuple[End, End]) -> None:
    writer, reader = ends
    [held] = reader.depot.resolve(A, [refer(ends)]) or [None]
    box = reader.depot._writers[A].box
    for _ in range(RETURNS + 1):
        box.append((3, 0))
    writer.depot.collect()
    assert not writer.depot.refer([PAYLOAD], Pipes((B,))), "nothing is shared any more"
    assert bytes(held) == PAYLOAD and writer.depot.statistics().bytes_total == 0


@pytest.mark.parametrize(
    "reference",
    [
        b"", bytes(19), bytes(21), bytes(27), bytes(29),
        encode_reference(9, 0, 10), encode_reference(0, 1 << 40, 10),
        encode_reference(0, 0, 1 << 40), encode_reference(0, 2**64 - 1, 2**64 - 1),
        encode_reference(0, 0, 0),
    ],
)  # fmt: skip
def test_reference_that_leads_nowhere_is_refused(ends: tuple[End, End], reference: bytes) -> None:
    _, reader = ends
    good = refer(ends)
    assert reader.depot.resolve(A, [good, reference]) is None
    assert reader.depot.resolve(b"x" * 20, [good]) is None
    assert reader.depot.statistics().not_taken == 1


def test_payloads_of_one_frame_share_a_slot_and_are_given_back_together(
    ends: tuple[End, End],
) -> None:
    writer, reader = ends
    refer(ends)
    payloads = [bytes([one]) * (20_000 + one) for one in range(5)]
    references = writer.depot.refer(payloads, Pipes((B,)))
    views = reader.depot.resolve(A, references)
    assert views == payloads
    assert writer.depot.statistics().slots_in_use == 2, "and that of the one before"
    last = views[-1]
    views.clear()
    writer.depot.collect()
    assert writer.depot.statistics().slots_in_use == 2 and last == payloads[-1]
    del last
    assert writer.depot.statistics().slots_in_use == 1


def test_slot_is_shared_by_no_more_than_its_bound(ends: tuple[End, End]) -> None:
    writer, reader = ends
    refer(ends)
    payloads = [bytes([one]) * (BLOCK_BYTES_MAX // 3) for one in range(1, 5)]
    references = writer.depot.refer(payloads, Pipes((B,)))
    assert reader.depot.resolve(A, references) == payloads[:3]
    [alone] = writer.depot.refer([bytes(BLOCK_BYTES_MAX + 1), payloads[0]], Pipes((B,)))
    [view] = reader.depot.resolve(A, [alone]) or [b""]
    assert len(view) == BLOCK_BYTES_MAX + 1


def test_without_room_for_all_of_them_the_first_payload_has_a_slot_of_its_own(
    ends: tuple[End, End], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, reader = ends
    refer(ends)
    monkeypatch.setattr(writer.depot._store, "_bytes_max", 0)
    [arena] = writer.depot._store.arenas.values()
    arena.carve(arena.size_bytes - arena._carved_bytes - 40_960)
    payloads = [bytes([one]) * 40_000 for one in range(1, 4)]
    held = reader.depot.resolve(A, writer.depot.refer(payloads, Pipes((B,))))
    assert held == payloads[:1]
    assert not writer.depot.refer(payloads, Pipes((B,))) and writer.depot.is_full


@pytest.mark.parametrize(
    "places",
    [
        [(0, 20_000), (10_000, 20_000)],  # They overlap.
        [(30_000, 10), (0, 10)],  # Not in order.
        [(0, 20_000), (1 << 40, 10)],  # Beyond the arena.
        [(0, 20_000), (20_032, 0)],  # Nothing.
    ],
)
def test_places_in_a_slot_that_make_no_sense_are_refused(
    ends: tuple[End, End], places: list[tuple[int, int]]
) -> None:
    refer(ends)
    assert ends[1].depot.resolve(A, encode_parts(0, 0, places)) is None
    assert ends[1].depot.resolve(A, encode_parts(0, 4096, [(0, 100), (200, 100)])) is None
    assert ends[1].depot.statistics().not_taken == 2


def test_frame_with_one_bad_reference_leaves_its_good_ones_claimed_for_the_repair(
    ends: tuple[End, End],
) -> None:
    writer, reader = ends
    good = refer(ends)
    assert reader.depot.resolve(A, [good, encode_reference(9, 0, 10)]) is None
    writer.depot.collect()
    assert writer.depot.statistics().slots_in_use == 1
    other = bytes(len(PAYLOAD))
    until(ends, lambda: writer.depot.refer([other], Pipes((B,))))
    [payload] = reader.depot.resolve(A, [good]) or [None]
    assert bytes(payload) == PAYLOAD, "nobody wrote there meanwhile"


@pytest.mark.parametrize("text", [b"", b"\x01", bytes(13), b"\x09" + bytes(40), b"\x02" * 13])
def test_note_that_makes_no_sense_is_counted(ends: tuple[End, End], text: bytes) -> None:
    writer, _ = ends
    writer.depot.take(Note(b"s" * 20, text, None))
    assert writer.depot.statistics().not_taken == 1


def test_offer_that_is_no_arena_is_refused_and_closed(ends: tuple[End, End]) -> None:
    writer, reader = ends
    inlet, outlet = os.pipe()
    text = depots._HEAD.pack(depots._OFFER, 5, 4096)
    reader.depot.take(Note(A, text, inlet))
    os.close(outlet)
    assert not Path(f"/proc/self/fd/{inlet}").exists()
    assert reader.depot.statistics().not_taken == 1
    writer.depot._readers[B] = depots._Reader()
    until(ends, lambda: writer.depot._readers[B].has_refused)
    assert not writer.depot.refer([PAYLOAD], Pipes((B,)))


def test_reader_that_gives_nothing_back_is_left_behind_and_keeps_what_it_has(
    ends: tuple[End, End],
) -> None:
    writer, reader = ends
    large = bytes([7]) * (STORE_BYTES_MAX // 16)
    [held] = reader.depot.resolve(A, [refer(ends, large)]) or [None]
    while not writer.depot.is_full:
        assert writer.depot.refer([large], Pipes((B,)))
    writer.now += STORE_PATIENCE
    writer.depot.advance(writer.now)
    assert writer.depot.stuck == {B} and not writer.depot.is_full
    statistics = writer.depot.statistics()
    assert statistics.left_behind == 1
    assert statistics.bytes_total == 0, "its arenas were given up"
    assert bytes(held) == large, "and nobody writes there any more"
    del held
    until(ends, lambda: not writer.depot.stuck)


def test_publisher_waits_at_three_quarters_until_half(
    ends: tuple[End, End], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(depots, "PINNED_BYTES_MAX", STORE_BYTES_MAX)
    writer, reader = ends
    large = bytes(STORE_BYTES_MAX // 32)
    references = [refer(ends, large)]
    while not writer.depot.is_full:
        made = writer.depot.refer([large], Pipes((B,)))
        assert made, "it says so before there is no room"
        references += made
    reader.serve()
    payloads = reader.depot.resolve(A, references)
    assert payloads is not None
    del payloads[len(references) * 9 // 10 :]
    writer.serve()
    assert writer.depot.is_full
    payloads.clear()
    until(ends, lambda: not writer.depot.is_full)


def test_reader_that_pins_too_much_gets_copies(
    ends: tuple[End, End], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, reader = ends
    monkeypatch.setattr(depots, "PINNED_BYTES_MAX", len(PAYLOAD))
    payloads = [reader.depot.resolve(A, [refer(ends)]) for _ in range(3)]
    kinds = [type(one[0]) for one in payloads if one is not None]
    assert kinds == [memoryview, memoryview, bytes]


@pytest.mark.parametrize("is_dead", [True, False])
def test_end_of_a_pipe_frees_what_a_dead_reader_had_and_leaves_a_living_one_its_views(
    ends: tuple[End, End], is_dead: bool
) -> None:
    writer, reader = ends
    [held] = reader.depot.resolve(A, [refer(ends)]) or [None]
    writer.depot.pipe_closed(B, is_dead=is_dead)
    statistics = writer.depot.statistics()
    assert (statistics.slots_in_use, statistics.retired) == (0, 0 if is_dead else 1)
    assert bytes(held) == PAYLOAD
    reader.depot.pipe_closed(A, is_dead=is_dead)
    assert bytes(held) == PAYLOAD
    assert (A in reader.depot._writers) is not is_dead, "a living one may repair"
    reader.depot.forget_others([])
    assert A not in reader.depot._writers and bytes(held) == PAYLOAD

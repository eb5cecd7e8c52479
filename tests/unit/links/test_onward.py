"""Payloads that a gateway hands on where they lie: who may still read them, and who may write."""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hubbub.limits import STORE_PATIENCE
from hubbub.links import depot as depots
from hubbub.links import onward
from hubbub.protocol.burst import Pipes
from hubbub.wire.batch import decode_references
from tests.unit.links.ends import End

WRITER, NEAR, FAR, READER, OTHER = (bytes([one]) * 20 for one in range(1, 6))
PATIENCE_S = 20.0
SIZE = 1 << 16


class Way:
    """From a writer in one network by a gateway, near and far, to readers in another."""

    def __init__(self, left: Path, right: Path) -> None:
        self.writer, self.near = End(WRITER, left), End(NEAR, left)
        self.far, self.reader, self.other = (End(one, right) for one in (FAR, READER, OTHER))
        self.ends = [self.writer, self.near, self.far, self.reader, self.other]
        self.hand_on()
        self.until(lambda: len(self.far.link.opened) == 2 and self.near.link.opened)

    def hand_on(self) -> None:
        self.near.depot.hand_on()
        self.far.depot.hand_on()

    def until(self, is_so: Callable[[], Any]) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < end_s, "it did not happen"
            for end in self.ends:
                end.serve()

    def publish(self, payload: bytes) -> Any:
        """Let the writer publish, and return what the gateway has of it."""
        return self._refer(self.writer, payload, self.near, Pipes((NEAR,)))

    def pass_on(self, payload: Any, readers: tuple[bytes, ...] = (READER,)) -> bytes:
        """Let the gateway pass a payload on, and return the reference."""
        made: list[bytes] = []

        def is_referred() -> bool:
            made.extend(self.far.depot.refer([payload], Pipes(readers)))
            return bool(made)

        self.until(is_referred)
        return made[0]

    def read(self, reference: bytes, end: End | None = None) -> Any:
        end = end or self.reader
        self.until(lambda: FAR in end.depot._writers)
        end.serve()
        [payload] = end.depot.resolve(FAR, [reference]) or [None]
        assert payload is not None
        return payload

    def _refer(self, source: End, payload: bytes, target: End, route: Pipes) -> Any:
        made: list[bytes] = []

        def is_referred() -> bool:
            made.extend(source.depot.refer([payload], route))
            return bool(made)

        self.until(is_referred)
        self.until(lambda: source.key in target.depot._writers)
        target.serve()
        [view] = target.depot.resolve(source.key, made) or [None]
        assert view is not None
        return view

    def in_use(self) -> int:
        """Return how many slots the writer may not write."""
        return self.writer.depot.statistics().slots_in_use


@pytest.fixture
def way() -> Iterator[Way]:
    with (
        tempfile.TemporaryDirectory(prefix="hub") as left,
        tempfile.TemporaryDirectory(prefix="hub") as right,
    ):
        made = Way(Path(left), Path(right))
        warm(made)
        yield made
        for end in made.ends:
            end.close()


def warm(way: Way) -> None:
    """Let everybody map what it needs: the first payload to a reader is a copy."""
    for key, end in ((READER, way.reader), (OTHER, way.other)):
        before = way.far.depot.statistics().handed_on
        while way.far.depot.statistics().handed_on == before:
            way.read(way.pass_on(way.publish(bytes(SIZE)), (key,)), end)
            way.until(lambda: way.in_use() == 0)


def make(number: int) -> bytes:
    return bytes([number]) * SIZE


def overwrite(way: Way) -> None:
    """Let the writer write whatever it may."""
    for _ in range(300):
        way.writer.depot.refer([make(255)], Pipes((NEAR,)))


def test_payload_is_read_where_its_writer_put_it(way: Way) -> None:
    copies = way.far.depot.statistics().slots_in_use
    payload = way.read(way.pass_on(way.publish(make(1))))
    assert isinstance(payload, memoryview) and payload.readonly and bytes(payload) == make(1)
    assert way.far.depot.statistics().slots_in_use == copies == 0
    assert way.in_use() == 1


def publish_together(way: Way, payloads: list[bytes]) -> list[Any]:
    """Let the writer put payloads into one slot, and return what the gateway has of them."""
    views = way.near.depot.resolve(WRITER, way.writer.depot.refer(payloads, Pipes((NEAR,))))
    assert views == payloads and way.in_use() == 1
    return views


def test_payloads_of_one_slot_are_handed_on_together(way: Way) -> None:
    payloads = [bytes([one]) * (SIZE + one) for one in range(4)]
    views = publish_together(way, payloads)
    references = way.far.depot.refer(views, Pipes((READER, OTHER)))
    assert len(references) == 4
    del views
    held = [end.depot.resolve(FAR, references) for end in (way.reader, way.other)]
    assert held == [payloads, payloads]
    assert way.far.depot.statistics().slots_in_use == 0 and way.in_use() == 1
    one = (held.pop() or [])[2]
    held.clear()
    for _ in range(3):
        overwrite(way)
        way.far.depot.collect()
        assert bytes(one) == payloads[2], "the other three are gone, but it is not"
    before = way.in_use()
    del one
    way.until(lambda: way.in_use() == before - 1)


def test_slot_that_goes_on_in_two_frames_is_given_back_after_both(way: Way) -> None:
    payloads = [bytes([one]) * SIZE for one in range(6)]
    views = publish_together(way, payloads)
    frames = [way.far.depot.refer(views[at : at + 2], Pipes((READER,))) for at in (0, 2, 4)]
    del views
    held = [way.reader.depot.resolve(FAR, frame) for frame in frames]
    assert held == [payloads[:2], payloads[2:4], payloads[4:]]
    for left in (2, 1):
        del held[0]
        way.far.depot.collect()
        overwrite(way)
        assert held == [payloads[at : at + 2] for at in (0, 2, 4)][-left:]
    before = way.in_use()
    held.clear()
    way.until(lambda: way.in_use() == before - 1)
    onward_ledger = way.far.depot._onward
    assert onward_ledger is not None and onward_ledger.bytes_in_use == 0


def test_payloads_of_several_slots_go_on_slot_by_slot_and_copies_by_themselves(way: Way) -> None:
    views = publish_together(way, [make(1), make(2)])
    alone = way.publish(make(3))
    made = way.far.depot.refer([*views, alone, b"own" * SIZE], Pipes((READER,)))
    assert way.reader.depot.resolve(FAR, made) == [make(1), make(2)]
    cut = views[0][:-1]  # Not as it was put there.
    made = way.far.depot.refer([cut, views[1]], Pipes((READER,)))
    assert way.reader.depot.resolve(FAR, made) == [make(1)[:-1], make(2)], "copied, both"


def test_writer_gets_its_slot_back_when_the_reader_beyond_has_let_go(way: Way) -> None:
    payload = way.read(way.pass_on(way.publish(make(1))))
    overwrite(way)
    assert bytes(payload) == make(1)
    before = way.in_use()
    del payload
    way.until(lambda: way.in_use() == before - 1)


def test_all_readers_must_have_let_go(way: Way) -> None:
    reference = way.pass_on(way.publish(make(1)), (READER, OTHER))
    first, second = way.read(reference), way.read(reference, way.other)
    del first
    for end in way.ends:
        end.serve()
    assert way.in_use() == 1 and bytes(second) == make(1)
    del second
    way.until(lambda: way.in_use() == 0)


def test_what_is_given_back_is_looked_for_though_nothing_more_is_passed_on(way: Way) -> None:
    payload = way.read(way.pass_on(way.publish(make(1))))
    del payload
    deadline = way.far.depot.deadline()
    assert deadline is not None
    way.far.depot.advance(deadline)
    way.writer.depot.collect()
    assert way.in_use() == 0 and way.far.depot.deadline() is None


def test_it_is_looked_for_more_seldom_while_somebody_holds_it(way: Way) -> None:
    held = way.read(way.pass_on(way.publish(make(1))))
    looks = []
    for _ in range(10):
        deadline = way.far.depot.deadline()
        assert deadline is not None
        looks.append(deadline)
        way.far.depot.advance(deadline)
    assert looks[-1] - looks[-2] == depots._LOOK_SELDOM < STORE_PATIENCE
    assert bytes(held) == make(1)


def test_reader_that_holds_much_gets_copies_and_others_do_not(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onward, "READER_BYTES_MAX", 4 * SIZE)
    held = [way.read(way.pass_on(way.publish(make(one)))) for one in range(6)]
    assert way.in_use() == 4 and way.far.depot.statistics().slots_in_use == 2
    held.append(way.read(way.pass_on(way.publish(make(6)), (OTHER,)), way.other))
    assert way.in_use() == 5
    assert [bytes(one) for one in held] == [make(one) for one in range(7)]


@pytest.mark.parametrize(
    ("name", "bound"),
    [("ONWARD_BYTES_MAX", 2 * SIZE), ("READER_SLOTS_MAX", 2), ("READER_BYTES_MAX", 2 * SIZE)],
)
def test_bounds_are_kept(way: Way, monkeypatch: pytest.MonkeyPatch, name: str, bound: int) -> None:
    monkeypatch.setattr(onward, name, bound)
    held = [way.read(way.pass_on(way.publish(make(one)))) for one in range(4)]
    assert way.in_use() == 2
    assert [bytes(one) for one in held] == [make(one) for one in range(4)]


def test_no_more_arenas_are_offered_than_a_reader_maps(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onward, "ARENAS_MAX", 0)
    way.far.depot._onward = None
    way.far.depot.hand_on()
    payload = way.read(way.pass_on(way.publish(make(1))))
    way.until(lambda: way.in_use() == 0)
    assert bytes(payload) == make(1)


def test_part_of_a_payload_is_copied(way: Way) -> None:
    whole = way.publish(make(1))
    payload = way.read(way.pass_on(whole[4096:40960]))
    del whole
    way.until(lambda: way.in_use() == 0)
    assert bytes(payload) == make(1)[4096:40960]


def test_payload_that_was_handed_on_twice_is_given_back_after_both(way: Way) -> None:
    whole = way.publish(make(1))
    first, second = way.read(way.pass_on(whole)), way.read(way.pass_on(whole))
    assert way.far.depot.statistics().slots_in_use == 0, "nothing is copied"
    del whole, first
    for _ in range(3):
        way.far.depot.collect()
        overwrite(way)
    assert bytes(second) == make(1)
    before = way.in_use()
    del second
    way.until(lambda: way.in_use() == before - 1)


def test_dead_reader_holds_nothing(way: Way) -> None:
    way.read(way.pass_on(way.publish(make(1)), (READER, OTHER)))
    held = way.read(way.pass_on(way.publish(make(2)), (OTHER,)), way.other)
    way.far.depot.pipe_closed(READER, is_dead=True)
    way.until(lambda: way.in_use() == 2)
    way.far.depot.pipe_closed(OTHER, is_dead=True)
    way.until(lambda: way.in_use() == 0)
    del held


def test_reader_that_lives_keeps_what_it_has_though_its_pipe_has_ended(way: Way) -> None:
    held, let_go = (way.read(way.pass_on(way.publish(make(one)))) for one in (1, 2))
    way.far.depot.pipe_closed(READER, is_dead=False)
    overwrite(way)
    assert bytes(held) == make(1)
    before = way.in_use()
    del let_go
    way.until(lambda: way.in_use() == before - 1)
    overwrite(way)
    assert bytes(held) == make(1), "it gives back without a pipe, and only what it has let go of"


def test_what_such_a_reader_has_ends_when_it_dies(way: Way) -> None:
    held = way.read(way.pass_on(way.publish(make(1))))
    way.far.depot.pipe_closed(READER, is_dead=False)
    way.far.depot.pipe_closed(READER, is_dead=True)
    way.until(lambda: way.in_use() == 0)
    del held


def test_reader_that_comes_back_gives_back_nothing_twice(way: Way) -> None:
    """Its ring is read again from its beginning: what it says of old numbers must not count."""
    held = way.read(way.pass_on(way.publish(make(1))))
    arena = next(iter(way.far.depot._onward.arenas)) if way.far.depot._onward else 0
    way.far.depot.pipe_closed(READER, is_dead=False)
    [reference] = decode_references([way.pass_on(way.publish(make(2)))]) or [(arena, 0, 0, 0)]
    assert reference[0] != arena
    for _ in range(3):
        for end in way.ends:
            end.serve()
    overwrite(way)
    assert bytes(held) == make(1)


def test_death_of_the_gateway_leaves_readers_beyond_what_they_have(way: Way) -> None:
    held = way.read(way.pass_on(way.publish(make(1))))
    unread = way.pass_on(way.publish(make(2)))
    way.writer.depot.pipe_closed(NEAR, is_dead=True)
    assert way.writer.depot.statistics().retired == 1, "never written again"
    way.reader.depot.pipe_closed(FAR, is_dead=False)
    assert bytes(held) == make(1) and bytes(way.read(unread)) == make(2)


def test_death_of_a_reader_that_hands_nothing_on_costs_no_arena(way: Way) -> None:
    held = way.pass_on(make(1))
    way.far.depot.pipe_closed(READER, is_dead=True)
    assert held and way.far.depot.statistics().retired == 0


def test_closing_gateway_gives_back_nothing_that_is_still_read(way: Way) -> None:
    held = way.read(way.pass_on(way.publish(make(1))))
    way.far.close()
    del way.far.depot._onward
    way.writer.serve()
    assert way.in_use() == 1
    way.near.close()
    way.writer.serve()
    assert way.in_use() == 1, "the writer gives the arena up when it sees the end of the pipe"
    assert bytes(held) == make(1)


def test_death_of_the_writer_leaves_everything_as_it_is(way: Way) -> None:
    held = way.read(way.pass_on(way.publish(make(1))))
    late = way.publish(make(2))
    way.near.depot.pipe_closed(WRITER, is_dead=True)
    payload = way.read(way.pass_on(late))
    assert way.far.depot.statistics().slots_in_use == 1, "it is copied"
    assert bytes(held) == make(1) and bytes(payload) == make(2)
    way.far.depot.forget_others([])
    assert way.far.depot._onward is not None and not way.far.depot._onward.arenas


def test_arena_that_is_given_up_is_given_back_at_once_and_once(way: Way) -> None:
    """Else the writer would take the gateway for one that holds on, and pass it by."""
    held = way.read(way.pass_on(way.publish(make(1))))
    depot = way.writer.depot
    depot._note_full()
    way.writer.now += STORE_PATIENCE
    depot.advance(way.writer.now)
    assert depot.stuck == {NEAR}
    way.until(lambda: not depot.stuck)
    returns = depot._readers[NEAR].returns
    assert returns is not None
    at = returns._at
    assert bytes(held) == make(1)
    del held
    way.far.serve()
    way.writer.serve()
    assert returns._at == at and depot.statistics().refused == 0


def test_writer_that_does_not_know_of_it_is_not_handed_on_from() -> None:
    """One of an earlier release would write again what a gateway had, as soon as it is dead."""
    with (
        tempfile.TemporaryDirectory(prefix="hub") as left,
        tempfile.TemporaryDirectory(prefix="hub") as right,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(depots, "_MAY_BE_HANDED_ON", b"\x02")
        way = Way(Path(left), Path(right))
        payload = way.read(way.pass_on(way.publish(make(1))))
        assert bytes(payload) == make(1) and way.far.depot.statistics().handed_on == 0
        for end in way.ends:
            end.close()


def test_what_was_handed_on_is_not_handed_on_again() -> None:
    """We could not give up an arena of another writer if who hands on from us died."""
    with (
        tempfile.TemporaryDirectory(prefix="hub") as left,
        tempfile.TemporaryDirectory(prefix="hub") as right,
    ):
        way = Way(Path(left), Path(right))
        way.reader.depot.hand_on()
        warm(way)
        own, handed = way.read(way.pass_on(make(1))), way.read(way.pass_on(way.publish(make(2))))
        assert own.obj.mapping.may_be_handed_on and not handed.obj.mapping.may_be_handed_on
        for end in way.ends:
            end.close()

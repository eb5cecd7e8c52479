"""What a writer lends: its own claim beside those of readers, and how it ends."""

import gc
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hubbub.links.arena import Slot, Store, is_supported
from hubbub.links.loans import LOANS_BYTES_MAX, draft_at, draft_of
from hubbub.loan import Loan
from hubbub.protocol.burst import Pipes
from hubbub.wire.batch import decode_references
from tests.unit.links.ends import End

MIB = 1 << 20
A, B = bytes([1]) * 20, bytes([2]) * 20
ROUTE = Pipes((B,))
PATIENCE_S = 20

pytestmark = pytest.mark.skipif(not is_supported(), reason="the system has no sealed memfd")


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store(64 * MIB)
    yield store
    store.close()


@pytest.fixture
def ends() -> Iterator[tuple[End, End]]:
    """Two ends of which the second has mapped what the first writes."""
    with tempfile.TemporaryDirectory(prefix="hub") as directory:
        writer, reader = End(A, Path(directory)), End(B, Path(directory))
        until((writer, reader), lambda: writer.link.opened and reader.link.opened)
        until((writer, reader), lambda: writer.depot.refer([bytes(MIB)], ROUTE))
        until((writer, reader), lambda: A in reader.depot._writers)
        yield writer, reader
        writer.close()
        reader.close()


def until(ends: tuple[End, End], is_so: Callable[[], Any]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end_s, "it did not happen"
        for end in ends:
            end.serve()


def lend(store: Store, size_bytes: int = MIB) -> Slot:
    slot = store.lend(size_bytes)
    assert slot is not None
    return slot


def test_slot_that_is_lent_is_nobody_elses_until_the_loan_ends(store: Store) -> None:
    slot = lend(store)
    assert store.lent_bytes == store.bytes_in_use == MIB
    for _ in range(20):
        block = store.put([bytes(MIB)], ["reader"])
        assert block is not None and (block.arena, block.slot) != slot.place
        store.release("reader", [(block.arena, block.slot)])
    store.end_loan(slot)
    store.end_loan(slot)
    assert store.lent_bytes == store.bytes_in_use == 0


def test_shared_slot_is_free_when_the_writer_and_all_readers_are_done(store: Store) -> None:
    slot = lend(store)
    assert store.share(slot, ["one", "two"])
    store.release("one", [slot.place])
    store.end_loan(slot)
    assert store.bytes_in_use == MIB
    store.release("two", [slot.place])
    assert store.bytes_in_use == 0
    assert store.statistics().refused == 0


def test_reader_never_has_two_claims_on_a_slot(store: Store) -> None:
    slot = lend(store)
    assert store.share(slot, ["one"])
    assert not store.share(slot, ["two", "one"])
    assert store.claims_of("two") == 0, "nothing has changed"
    store.release("one", [slot.place])
    assert store.share(slot, ["two", "one"])


def test_reader_cannot_end_the_claim_of_the_writer(store: Store) -> None:
    slot = lend(store)
    store.release("reader", [slot.place])
    store.forget("reader")
    assert store.lent_bytes == MIB and store.statistics().refused == 1


def test_loan_in_an_arena_that_was_given_up_is_shared_no_more(store: Store) -> None:
    slot = lend(store)
    assert store.put([bytes(MIB)], ["stuck"]) is not None
    store.retire("stuck")
    assert not store.share(slot, ["reader"])
    store.end_loan(slot)
    assert store.bytes_in_use == store.lent_bytes == 0


def test_full_store_lends_nothing() -> None:
    store = Store(16 * MIB)
    slots = [store.lend(4 * MIB) for _ in range(5)]
    assert slots[3] is not None and slots[4] is None
    store.close()


def test_memory_of_a_draft_outlives_its_store_and_is_given_back_when_it_goes() -> None:
    store, returned = Store(64 * MIB), deque[Slot]()
    draft = draft_at(lend(store), 1000, returned)
    view = draft.view()
    store.close()
    view[:] = bytes([7]) * 1000
    assert len(view) == 1000 and view.format == "B" and bytes(view) == bytes([7]) * 1000
    part = view[10:20]
    del draft, view
    assert not returned, "a part keeps it"
    del part
    assert len(returned) == 1
    store.end_loan(returned.pop())


def test_only_all_of_a_draft_counts_as_one(store: Store) -> None:
    draft = draft_at(lend(store), 1000, deque())
    assert draft_of(draft.view().toreadonly()) is draft
    assert draft_of(draft.view()[1:]) is None
    assert draft_of(bytes(1000)) is None and draft_of(memoryview(bytes(1000))) is None


def test_loan_is_referred_to_where_it_lies(ends: tuple[End, End]) -> None:
    writer, reader = ends
    draft = writer.depot.lend(MIB, ROUTE)
    assert draft is not None
    draft.view()[:] = bytes([9]) * MIB
    references = writer.depot.refer([draft.view().toreadonly()], ROUTE)
    [(number, offset, size_bytes, _)] = decode_references(references) or []
    assert ((number, offset), size_bytes) == (draft.slot.place, MIB)
    views = reader.depot.resolve(A, references)
    assert views == [bytes([9]) * MIB]
    del draft
    writer.depot.collect()
    assert writer.depot._store.lent_bytes == 0
    assert writer.depot._store.claims_of(B) >= 1, "the reader still has it"


def test_loan_that_a_reader_has_already_is_copied(ends: tuple[End, End]) -> None:
    writer, _ = ends
    draft = writer.depot.lend(MIB, ROUTE)
    assert draft is not None
    payload = draft.view().toreadonly()
    [first], [again] = (writer.depot.refer([payload], ROUTE) for _ in range(2))
    assert first != again


def test_loan_of_another_depot_is_copied(ends: tuple[End, End], store: Store) -> None:
    draft = draft_at(lend(store), MIB, deque())
    draft.view()[:] = bytes([4]) * MIB
    references = ends[0].depot.refer([draft.view().toreadonly()], ROUTE)
    assert ends[1].depot.resolve(A, references) == [bytes([4]) * MIB]


def test_loan_beside_others_in_a_frame_has_a_slot_of_its_own(ends: tuple[End, End]) -> None:
    writer, reader = ends
    draft = writer.depot.lend(100_000, ROUTE)
    assert draft is not None
    draft.view()[:] = bytes([3]) * 100_000
    payloads = [bytes(70_000), bytes(70_000), draft.view().toreadonly()]
    first = writer.depot.refer(payloads, ROUTE)
    assert len(first) == 2, "those before it share one"
    views = reader.depot.resolve(A, first + writer.depot.refer(payloads[2:], ROUTE))
    assert views == payloads


def test_nothing_is_lent_to_readers_that_have_mapped_nothing(ends: tuple[End, End]) -> None:
    assert ends[0].depot.lend(MIB, Pipes((B, bytes(20)))) is None


def test_no_more_is_lent_than_the_bound(ends: tuple[End, End]) -> None:
    drafts = [ends[0].depot.lend(4 * MIB, ROUTE) for _ in range(LOANS_BYTES_MAX // (4 * MIB) + 1)]
    assert drafts[-2] is not None and drafts[-1] is None
    drafts.clear()
    assert ends[0].depot.lend(4 * MIB, ROUTE) is not None


def test_loan_that_could_not_be_published_can_be_published_again() -> None:
    loan = Loan(bytearray(b"abc"), 3)
    assert loan.seal() == loan.seal() == b"abc"
    with pytest.raises(Exception, match="publish it again, or cancel it"):
        _ = loan.view
    loan.cancel()
    with pytest.raises(Exception, match="was cancelled"):
        loan.seal()


def test_published_loan_keeps_nothing(store: Store) -> None:
    returned = deque[Slot]()
    loan = Loan(draft_at(lend(store), 10, returned), 10)
    payload = loan.seal()
    loan.spend()
    assert not returned
    del payload
    gc.collect()
    assert len(returned) == 1

"""What waits for the disk: bounded, in order, and nothing vanishes without being counted."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from hubbub.limits import RECORDER_PINNED_BYTES_MAX, RECORDER_ROWS_BYTES, SECOND
from hubbub.message import Source
from hubbub.protocol.delivery import Delivery
from hubbub.recorder.intake import MESSAGE_COST_BYTES, Intake, NewRow

MIB = 1 << 20
EVERYTHING = 1 << 40
SOURCE = Source("node", bytes(12), 1)


@dataclass
class Topic:
    subject: str = "/a"
    source: Source = SOURCE
    schema_name: str = ""
    schema_hash: int = 0
    replayed_ns: int = 0
    request: int = 0
    generation: int = 0
    sinks: tuple[Any, ...] = field(default=())


def run(first: int = 1, count: int = 1, size: int = 10, time_ns: int = 0) -> Delivery:
    return Delivery(Topic(), first, [bytes(size)] * count, [5] * count, time_ns, "local")


def view(first: int = 1, size: int = MIB) -> Delivery:
    return run(first)._replace(payloads=[memoryview(bytes(size))])  # type: ignore[list-item]


def test_what_was_put_is_taken_in_order() -> None:
    intake = Intake(MIB)
    items = [run(1), NewRow("events", {}), run(2)]
    for item in items:
        if isinstance(item, NewRow):
            intake.put_row(*item)
        else:
            intake.put_run(item)
    batch = intake.take(EVERYTHING)
    assert batch.items == items
    assert (batch.loss, batch.last) == (None, 3)
    assert intake.take(EVERYTHING).items == []


def test_batch_is_bounded_but_never_empty_while_something_waits() -> None:
    intake = Intake(MIB)
    for first in range(1, 6):
        intake.put_run(run(first, size=1000))
    assert len(intake.take(2500).items) == 2
    assert len(intake.take(1).items) == 1
    assert len(intake.take(EVERYTHING).items) == 2


def test_room_is_made_by_what_is_written_not_by_what_is_taken() -> None:
    intake = Intake(2 * (1000 + MESSAGE_COST_BYTES))
    intake.put_run(run(1, size=1000))
    intake.put_run(run(2, size=1000))
    batch = intake.take(EVERYTHING)
    intake.put_run(run(3, size=1000))
    assert intake.lost.total == 1
    intake.done(batch)
    assert intake.bytes == 0
    intake.put_run(run(4, size=1000))
    assert intake.lost.total == 1


def test_what_finds_no_room_is_told_as_ranges() -> None:
    intake = Intake(2000)
    intake.put_run(run(1, size=1500))
    for first in (2, 5, 8):
        intake.put_run(run(first, count=3, size=500))
    intake.put_run(run(20, count=2, size=500))
    intake.put_row("events", {})  # A row always has room: it may tell of the loss.
    batch = intake.take(EVERYTHING)
    assert len(batch.items) == 2
    assert batch.loss is not None
    assert batch.loss.messages == 11
    assert batch.loss.ranges == (("/a", SOURCE, 2, 10), ("/a", SOURCE, 20, 21))
    assert intake.take(EVERYTHING).loss is None


def test_few_views_of_shared_memory_wait_the_others_are_copied() -> None:
    intake = Intake(100 * MIB)
    for first in range(8):
        intake.put_run(view(first))
    batch = intake.take(EVERYTHING)
    kinds = [type(item.payloads[0]) for item in batch.items if isinstance(item, Delivery)]
    kept = RECORDER_PINNED_BYTES_MAX // MIB
    assert kinds == [memoryview] * kept + [bytes] * (8 - kept)
    intake.put_run(view())
    assert type(intake.take(EVERYTHING).items[0].payloads[0]) is bytes  # type: ignore[union-attr]
    intake.done(batch)
    intake.put_run(view())
    assert type(intake.take(EVERYTHING).items[0].payloads[0]) is memoryview  # type: ignore[union-attr]


def test_ring_keeps_the_last_seconds_and_gives_nothing_until_it_is_triggered() -> None:
    intake = Intake(MIB, pre_ns=10 * SECOND)
    for second in range(20):
        intake.put_run(run(second, time_ns=second * SECOND))
    assert intake.take(EVERYTHING).items == []
    intake.trigger()
    firsts = [item.first for item in intake.take(EVERYTHING).items if isinstance(item, Delivery)]
    assert firsts == list(range(9, 20))
    intake.put_run(run(20))
    assert len(intake.take(EVERYTHING).items) == 1


def test_ring_is_bounded_in_bytes_too_and_that_is_no_loss() -> None:
    intake = Intake(5 * (1000 + MESSAGE_COST_BYTES), pre_ns=10**6 * SECOND)
    for first in range(20):
        intake.put_run(run(first, size=1000))
    assert intake.bytes <= intake.bytes_max
    intake.trigger()
    batch = intake.take(EVERYTHING)
    assert [item.first for item in batch.items if isinstance(item, Delivery)] == list(range(15, 20))
    assert batch.loss is None


@pytest.mark.parametrize("is_first", [True, False])
def test_wait_ends_at_once_when_something_is_there(is_first: bool) -> None:
    intake = Intake(MIB)
    if is_first:
        intake.put_run(run())
        intake.wait(60)
    else:
        intake.wait(0)
        intake.put_run(run())
        intake.wait(60)


def test_rows_have_room_when_the_queue_is_full_but_not_without_end() -> None:
    intake = Intake(MIB)
    intake.put_run(run(size=MIB - MESSAGE_COST_BYTES))
    for _ in range(2 * RECORDER_ROWS_BYTES // 1000):
        intake.put_row("counters", {})
    assert intake.bytes <= MIB + RECORDER_ROWS_BYTES
    batch = intake.take(EVERYTHING)
    rows = len(batch.items) - 1
    assert rows >= RECORDER_ROWS_BYTES // 1000 - 1
    assert rows + batch.lost_rows == 2 * RECORDER_ROWS_BYTES // 1000
    assert intake.take(EVERYTHING).lost_rows == 0

"""Makes journal segments in memory, as the recorder would have written them."""

from collections.abc import Sequence
from pathlib import Path

from hubbub.store import records
from hubbub.store.journal import Row, Run, Topic, segment_path
from hubbub.store.records import Begin, Chain, End

RECORDER = bytes(range(16))
TOPIC = Topic("/plant/temp", "lidar", bytes(12), 7, "", 0)


def run(offset: int, count: int = 3, topic: Topic = TOPIC, size: int = 64) -> Run:
    """Make a run whose messages tell their offset."""
    payloads = [f"{at:08}".encode().ljust(size, b".") for at in range(offset, offset + count)]
    times = tuple(range(1000 + offset, 1000 + offset + count))
    return Run(offset, topic, offset, payloads, times, 2000 + offset, "local", None)


def body_of(value: Run | Row | Begin | End) -> tuple[int, list[bytes]]:
    """Encode any value; return its kind, too."""
    if isinstance(value, Run):
        label = records.encode_label(value.topic, value.link)
        offset, _, first, payloads, published_ns, received_ns, _, replayed_ns, timing = value
        kind = records.RUN if timing is None else records.CLOCK
        return kind, records.encode_run(
            label, offset, first, payloads, published_ns, received_ns, replayed_ns, timing
        )
    if isinstance(value, Row):
        return records.ROW, records.encode_row(*value)
    if isinstance(value, Begin):
        return records.BEGIN, records.encode_begin(value)
    return records.END, records.encode_end(value)


def pieces_of(
    values: Sequence[Run | Row], number: int = 0, segment_id: int = 99, is_closed: bool = True
) -> list[bytes]:
    """Encode a segment, a piece for each record."""
    chain = Chain(segment_id)
    runs = [value for value in values if isinstance(value, Run)]
    rows = [value for value in values if isinstance(value, Row)]
    first = Begin(RECORDER, number, runs[0].offset if runs else 0, rows[0].number if rows else 0, 5)
    everything: list[Run | Row | Begin | End] = [first, *values]
    if is_closed:
        end_offset = runs[-1].offset + len(runs[-1].payloads) if runs else 0
        everything.append(End(end_offset, rows[-1].number + 1 if rows else 0))
    return [b"".join(chain.add(*body_of(value))) for value in everything]


def write_segment(
    store: Path,
    values: Sequence[Run | Row],
    number: int = 0,
    is_closed: bool = True,
    zeros: int = 0,
) -> Path:
    """Put a segment into a store."""
    path = segment_path(store, number)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(pieces_of(values, number, is_closed=is_closed)) + bytes(zeros))
    return path

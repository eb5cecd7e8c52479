"""What other nodes tell of themselves (`hubbub.telling`), as rows of the events.

It befell them, not this recording: kinds of their own keep it from being taken for holes in it.
"""

from collections.abc import Iterator

import msgspec

from hubbub.events import SlowConsumer
from hubbub.message import Source
from hubbub.recorder.rows import Values, event_row, to_json
from hubbub.runtime.tally import Range
from hubbub.telling import Told

DROPPED = "ConsumerDropped"
LOST = "MessagesLost"
SLOTS = "SlotsCounted"


def told_rows(told: Told, node: Source, time_ns: int) -> Iterator[Values]:
    """Describe what a node tells: a row for each slow consumer, one for all losses, one for slots.

    What was dropped or lost, and which slots they were, is in `detail`.
    """
    for slow in told.slow:
        yield _slow_row(slow, node, time_ns)
    if told.lost:
        detail = to_json({"lost": told.lost, "ranges": told.lost_ranges})
        row = event_row(time_ns, LOST, detail, node, _subject_of(told.lost_ranges))
        yield row | {"count": told.lost}
    if told.slots:
        slots = [msgspec.structs.asdict(one) for one in told.slots]
        yield event_row(time_ns, SLOTS, msgspec.json.encode(slots).decode(), node)


def _slow_row(slow: SlowConsumer, node: Source, time_ns: int) -> Values:
    """Say of a consumer that it was slow: the node itself, or a receiver of what it publishes."""
    about, kind = (node, DROPPED) if slow.peer is None else (slow.peer, SlowConsumer.__name__)
    detail = to_json(msgspec.structs.asdict(slow) | {"told_by": node})
    row = event_row(time_ns, kind, detail, about, _subject_of(slow.ranges))
    return row | {"count": slow.dropped}


def _subject_of(ranges: tuple[Range, ...]) -> str | None:
    """Return the subject of messages that have but one."""
    subjects = {subject for subject, *_ in ranges}
    return subjects.pop() if len(subjects) == 1 else None

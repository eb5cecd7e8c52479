"""Whatever is published in whatever order, frames hold all of it once and never grow too large."""

from hypothesis import given
from hypothesis import strategies as st

from hubbub.limits import MS
from hubbub.message import Source
from hubbub.protocol.cache import body_bytes
from hubbub.protocol.framing import Framer
from hubbub.protocol.topics import OutgoingTopic
from hubbub.wire import batch
from hubbub.wire.header import RELIABLE

FRAME_BYTES = 1400
TOPICS = 4

# Sizes near the edge between one frame and two, where a declaration decides.
sizes = st.one_of(st.integers(0, 200), st.integers(1150, 1330), st.integers(2500, 4000))
publications = st.lists(st.tuples(st.integers(0, TOPICS - 1), sizes), max_size=40)
subjects = st.text("s", max_size=300)


@given(publications, st.lists(subjects, min_size=TOPICS, max_size=TOPICS), st.integers(1, 30))
def test_frames_fit_and_hold_every_message_once_in_order(
    published: list[tuple[int, int]], names: list[str], batch_count: int
) -> None:
    framer = Framer(RELIABLE, FRAME_BYTES, 1 * MS, 20, 1 << 20)
    framer.batch_count = batch_count
    topics = [
        OutgoingTopic(16 + place, f"/{place}{name}", Source("n", bytes(12), 1), is_reliable=True)
        for place, name in enumerate(names)
    ]
    for topic in topics:
        topic.takers = 1
    for place, size in published:
        framer.add(topics[place], bytes(size), 0)
    held: dict[int, list[int]] = {topic.number: [] for topic in topics}
    while (made := framer.next_body(0, 0)) is not None:
        body, *_ = made
        assert body_bytes(body) <= framer.body_bytes_max
        if isinstance(body, bytes):
            decoded = batch.decode(body, 0, len(body))
            assert decoded is not None
            for number, first, count in decoded.runs:
                held[number] += range(first, first + count)
        else:
            number, sequence, *_ = batch._SEGMENT.unpack(body[0])
            if sequence not in held[number]:
                held[number].append(sequence)
    for place, topic in enumerate(topics):
        count = sum(1 for other, _ in published if other == place)
        assert held[topic.number] == list(range(1, count + 1))

"""Records of a journal: what was encoded comes back, and nothing else is ever taken for it."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub.store.journal import Row, Run, Topic, open_segment
from hubbub.store.records import KINDS, Decoder, Timing, decode_head
from tests.unit.store.recording import body_of, pieces_of, write_segment

u64 = st.integers(0, 2**64 - 1)
i63 = st.integers(-(2**62), 2**62)
texts = st.text(max_size=30)
topics = st.builds(
    Topic, texts, texts, st.binary(max_size=12), u64, texts, u64, texts, u64, st.integers(0, 255)
)
values = st.dictionaries(texts, st.none() | st.booleans() | u64 | texts, max_size=5)
rows = st.builds(Row, u64, texts, values)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    payloads = draw(st.lists(st.binary(max_size=50), min_size=1, max_size=20))
    times = draw(st.lists(u64, min_size=len(payloads), max_size=len(payloads)))
    replayed_ns = draw(st.none() | st.integers(1, 2**64 - 1))
    timing = draw(st.none() | st.builds(Timing, u64, u64, u64, i63, i63))
    return Run(
        draw(u64), draw(topics), draw(u64), payloads, tuple(times), draw(u64), draw(texts),
        replayed_ns, timing,
    )  # fmt: skip


@st.composite
def recordings(draw: st.DrawFn) -> list[Run | Row]:
    """Draw a whole segment: its offsets and numbers go on without a hole."""
    found: list[Run | Row] = []
    offset = number = 0
    for value in draw(st.lists(runs() | rows, max_size=8)):
        if isinstance(value, Run):
            found.append(value._replace(offset=offset))
            offset += len(value.payloads)
        else:
            found.append(value._replace(number=number))
            number += 1
    return found


@given(runs() | rows)
def test_body_comes_back(value: Run | Row) -> None:
    kind, pieces = body_of(value)
    assert Decoder().decode(kind, b"".join(pieces)) == value


@given(runs() | rows, st.data())
def test_truncated_body_is_malformed(value: Run | Row, data: Any) -> None:
    kind, pieces = body_of(value)
    body = b"".join(pieces)
    assert Decoder().decode(kind, body[: data.draw(st.integers(0, len(body) - 1))]) is None
    assert Decoder().decode(kind, body + b"\0") is None


@given(st.sampled_from(KINDS), st.binary(max_size=200))
def test_any_body_is_decoded_or_malformed_but_never_raises(kind: int, body: bytes) -> None:
    Decoder().decode(kind, body)


@given(runs(), st.integers(0, 37), st.binary(min_size=4, max_size=4))
def test_hostile_lengths_are_malformed_or_harmless(run: Run, at: int, four: bytes) -> None:
    body = bytearray(b"".join(body_of(run)[1]))
    body[at : at + 4] = four
    decoded = Decoder().decode(2, bytes(body))
    assert decoded is None or isinstance(decoded, Run)


@given(st.binary(max_size=64))
def test_no_head_is_found_in_noise(data: bytes) -> None:
    assert decode_head(data) is None


@settings(max_examples=50)
@given(recordings(), st.booleans())
def test_segment_comes_back(recording: list[Run | Row], is_closed: bool) -> None:
    with TemporaryDirectory() as folder:
        path = write_segment(Path(folder), recording, is_closed=is_closed, zeros=0)
        with open_segment(path) as segment:
            assert list(segment) == recording
            assert segment.damaged == [] and segment.missing == [] and segment.torn_bytes == 0


@settings(max_examples=100)
@given(recordings(), st.data())
def test_bit_flips_take_only_what_they_touch(recording: list[Run | Row], data: Any) -> None:
    pieces = pieces_of(recording)
    whole = bytearray(b"".join(pieces))
    bits = data.draw(st.sets(st.integers(0, 8 * len(whole) - 1), min_size=1, max_size=64))
    for bit in bits:
        whole[bit // 8] ^= 1 << bit % 8
    touched = set()
    for place in range(len(pieces)):
        begin = sum(map(len, pieces[:place]))
        if any(begin <= bit // 8 < begin + len(pieces[place]) for bit in bits):
            touched.add(place)
    with TemporaryDirectory() as folder:
        path = write_segment(Path(folder), recording)
        path.write_bytes(whole)
        with open_segment(path) as segment:
            found = list(segment)
            assert found == [v for place, v in enumerate(recording, 1) if place not in touched]
            assert segment.damaged or segment.torn_bytes

"""Records in a stream of bytes: whatever pieces they come in, and what is refused."""

import struct
from random import Random

import pytest

from hubbub.limits import RECORD_BYTES_MAX
from hubbub.links.records import HEAD_BYTES, RecordReader, encode_head
from hubbub.wire.header import HEADER_BYTES

BURSTS = [
    (b"a" * HEADER_BYTES, 0),
    (b"b" * 500, 200),
    (b"c" * 1000, 0),
    (b"d" * (HEADER_BYTES + 1), HEADER_BYTES),
]
STREAM = b"".join(encode_head(len(data), segment) + data for data, segment in BURSTS)


def test_stream_that_is_cut_at_any_byte_gives_the_same_records() -> None:
    for at in range(len(STREAM) + 1):
        reader = RecordReader()
        assert reader.feed(STREAM[:at]) + reader.feed(STREAM[at:]) == BURSTS
        assert not reader.fault


def test_stream_that_comes_byte_by_byte_gives_the_same_records() -> None:
    reader = RecordReader()
    records = [record for at in range(len(STREAM)) for record in reader.feed(STREAM[at : at + 1])]
    assert records == BURSTS


@pytest.mark.parametrize("seed", range(20))
def test_stream_in_pieces_of_any_size_gives_the_same_records(seed: int) -> None:
    random, stream = Random(seed), STREAM * 50
    reader, records, at = RecordReader(), [], 0
    while at < len(stream):
        size = random.choice([1, 7, 100, 5000, 60_000])
        records += reader.feed(stream[at : at + size])
        at += size
    assert records == BURSTS * 50


def test_largest_record_is_taken() -> None:
    data = bytes(RECORD_BYTES_MAX)
    assert RecordReader().feed(encode_head(len(data), 0) + data) == [(data, 0)]


@pytest.mark.parametrize(
    ("length", "segment_bytes"),
    [
        (0, 0), (HEADER_BYTES - 1, 0), (RECORD_BYTES_MAX + 1, 0), (2**32 - 1, 0),
        (1000, 1), (1000, HEADER_BYTES - 1), (1000, 1000), (1000, 65_535),
    ],
)  # fmt: skip
def test_length_that_no_burst_has_ends_the_stream(length: int, segment_bytes: int) -> None:
    reader = RecordReader()
    head = struct.pack("!IH", length, segment_bytes)
    assert len(head) == HEAD_BYTES
    good = encode_head(100, 0) + bytes(100)
    assert reader.feed(good + head) == [(bytes(100), 0)]
    assert reader.fault
    assert reader.feed(good) == [], "nothing after it can be trusted"


def test_hostile_length_claims_no_memory() -> None:
    reader = RecordReader()
    reader.feed(struct.pack("!IH", 2**31, 0) + bytes(1000))
    assert reader._rest == b""

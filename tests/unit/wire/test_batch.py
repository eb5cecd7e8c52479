"""Bodies of DATA and SEGMENT frames, and what lies in them."""

from struct import pack, pack_into

import pytest

from hubbub.limits import MESSAGE_BYTES_MAX, SEGMENT_STRIDE_MIN, SEQUENCE_MAX
from hubbub.wire import batch
from tests.vectors.frames import decode_data

BODY = batch.encode([(16, 7, 2), (17, 1, 1)], [b"ab", b"", b"xyz"], [100, 105, 101], b"decl")


def test_batch_comes_back_as_it_was() -> None:
    assert decode_data(BODY) == (
        [(16, 7, 2), (17, 1, 1)], [b"ab", b"", b"xyz"], (100, 105, 101), b"decl",
    )  # fmt: skip


def test_body_without_messages_only_declares() -> None:
    assert decode_data(batch.encode([], [], [], b"decl")) == ([], [], (), b"decl")


def test_padding_behind_the_payloads_is_ignored() -> None:
    assert decode_data(BODY + bytes(100)) == decode_data(BODY)


def test_body_is_found_inside_a_larger_buffer() -> None:
    assert batch.decode(b"front" + BODY + b"back", 5, 5 + len(BODY)) == decode_data(BODY)


def test_run_table_outlives_the_payloads() -> None:
    assert batch.decode_runs(batch.read_runs(BODY)) == [(16, 7, 2), (17, 1, 1)]
    assert batch.decode_runs(batch.read_runs(BODY) + b"torn") == [(16, 7, 2), (17, 1, 1)]


@pytest.mark.parametrize(
    ("offset", "lie"),
    [
        (0, pack("!H", 3)),  # one run more than there is
        (0, pack("!H", 1)),  # one run fewer
        (0, pack("!H", 0xFFFF)),
        (2, pack("!H", 0xFFFF)),  # declarations beyond the end
        (4, pack("!I", 2)),  # a message fewer than the runs say
        (4, pack("!I", 0xFFFF_FFFF)),
        (24, pack("!I", 0)),  # a run of no messages
        (24, pack("!I", 0xFFFF_FFFF)),
        (16, pack("!Q", SEQUENCE_MAX - 1)),  # a run past the last sequence
        (44, pack("!I", 0xFFFF_FFFF)),  # a length beyond the end
    ],
)
def test_lying_counts_and_lengths_are_refused(offset: int, lie: bytes) -> None:
    body = bytearray(BODY)
    body[offset : offset + len(lie)] = lie
    assert decode_data(bytes(body)) is None


def test_run_of_no_messages_is_refused_even_if_the_counts_add_up() -> None:
    body = bytearray(BODY)
    pack_into("!I", body, 24, 3)
    assert decode_data(bytes(body)) is None
    pack_into("!I", body, 40, 0)
    assert decode_data(bytes(body)) is None


def segment(
    total: int = 3000, offset: int = 1000, stride: int = 1000, size: int = 1000, sequence: int = 5
) -> batch.Segment | None:
    body = batch.encode_segment_head(16, sequence, 99, total, offset, stride) + b"x" * size
    return batch.decode_segment(body, 0, len(body))


def test_segment_comes_back_as_it_was() -> None:
    assert segment() == (16, 5, 99, 3000, 1000, 1000, b"x" * 1000)
    assert segment(total=2500, offset=2000, size=500) is not None


@pytest.mark.parametrize(
    "lie",
    [
        {"total": 0},
        {"total": MESSAGE_BYTES_MAX + 1},
        {"offset": 3000},
        {"offset": 500},  # not on a stride: it would overlap
        {"size": 999},
        {"size": 1001},
        {"size": 0},
        {"stride": 0},
        {"stride": 999},
        {"sequence": SEQUENCE_MAX},
        {"total": 2000, "offset": 0, "stride": SEGMENT_STRIDE_MIN - 1, "size": 1},
    ],
    ids=str,
)
def test_lying_segment_is_refused(lie: dict[str, int]) -> None:
    assert segment(**lie) is None


def test_segment_with_tiny_stride_is_refused_lest_pieces_cost_more_than_they_hold() -> None:
    assert segment(total=1000, offset=0, stride=1, size=1) is None
    smallest = SEGMENT_STRIDE_MIN
    assert segment(total=1000, offset=0, stride=smallest, size=smallest) is not None


def test_segment_knows_the_run_of_its_message() -> None:
    head = batch.encode_segment_head(16, 5, 99, 3000, 0, 1000)
    assert batch.decode_runs(batch.read_segment_run(head)) == [(16, 5, 1)]


def test_length_table_that_overflows_the_buffer_by_its_sum_is_refused() -> None:
    body = bytearray(batch.encode([(16, 1, 3)], [b"a", b"b", b"c"], [0, 0, 0]))
    lengths_at = batch.HEAD_BYTES + batch.RUN_BYTES
    pack_into("!3I", body, lengths_at, 2**31, 2**31, 2**31)
    assert decode_data(bytes(body)) is None


@pytest.mark.parametrize("count", [31, 32, 33, 64, 100])
@pytest.mark.parametrize("size", [0, 1, 64])
def test_many_messages_of_one_size_come_out_as_they_went_in(count: int, size: int) -> None:
    payloads = [bytes([number]) * size for number in range(count)]
    body = batch.encode([(16, 7, count)], payloads, list(range(count)))
    decoded = batch.decode(b"head" + body + b"tail", 4, 4 + len(body))
    assert decoded is not None
    assert decoded.payloads == payloads
    if size:
        assert batch.decode(body, 0, len(body) - 1) is None

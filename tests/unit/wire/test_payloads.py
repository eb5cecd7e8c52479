"""Several payloads as one: what comes out is what went in, and damage is seen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.wire.payloads import count_of, is_sound, join, split
from hubbub.wire.services import (
    BATCH,
    INFO,
    NOTHING,
    PUBLISH,
    RETAIN,
    SUBSCRIBE_SERVICE,
    Message,
    Request,
    decode_request,
    encode_request,
)

PAYLOADS = [b"21.5", b"", b"x" * 300]


def batch(rest: bytes, *, type: int = PUBLISH, flags: int = BATCH) -> bytes:
    message = Message(type, bytes(20), rest)
    return encode_request(Request(1, flags, 0, bytes(12), 1, 7, 0, 0, 0, message, NOTHING))


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=300))
def test_payloads_come_out_as_they_went_in(payloads: list[bytes]) -> None:
    joined = join(payloads)
    assert is_sound(joined)
    assert count_of(joined) == len(payloads)
    assert split(joined) == payloads


def test_batch_is_a_request_for_each_of_its_messages() -> None:
    request = decode_request(batch(join(PAYLOADS), type=INFO))
    assert request is not None
    assert (request.messages, request.payloads) == (3, PAYLOADS)


def test_single_message_is_a_batch_of_itself() -> None:
    request = decode_request(batch(b"21.5", flags=0))
    assert request is not None
    assert (request.messages, request.payloads) == (1, [b"21.5"])


@pytest.mark.parametrize(
    "rest",
    [b"", b"\0", b"\0\0", b"\0\1", join(PAYLOADS)[:-1], join(PAYLOADS) + b"x", b"\xff\xff" * 4],
)
def test_damaged_batch_is_refused(rest: bytes) -> None:
    assert not is_sound(rest)
    assert decode_request(batch(rest)) is None


def test_only_plain_messages_come_in_batches() -> None:
    assert decode_request(batch(join(PAYLOADS), flags=BATCH | RETAIN)) is None
    assert decode_request(batch(b"", type=SUBSCRIBE_SERVICE)) is None

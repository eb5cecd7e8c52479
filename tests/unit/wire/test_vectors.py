"""The format does not change unnoticed: golden bytes of a frame of each kind, both ways."""

import pytest

from hubbub.protocol.endpoint import hash_domain
from hubbub.wire import header
from tests.vectors.frames import (
    DOMAIN,
    FOLDER,
    HOP_LIMIT,
    KEY,
    PACKET,
    SENT_US,
    VECTORS,
    encode,
    golden,
    read_receivers,
)

names = pytest.mark.parametrize("name", VECTORS)


@names
def test_values_encode_to_the_golden_bytes(name: str) -> None:
    assert encode(VECTORS[name]).hex() == golden(name).hex()


@names
def test_golden_header_decodes_to_its_values(name: str) -> None:
    vector, frame = VECTORS[name], golden(name)
    decoded = header.decode(frame)
    flags, receiver, bitmap = read_receivers(vector)
    assert decoded._replace(checksum=0) == header.Header(
        header.MAGIC, header.VERSION, vector.kind, flags, HOP_LIMIT, 0,
        vector.stream, DOMAIN, KEY, receiver, bitmap, vector.sequence, PACKET, SENT_US, 0,
    )  # fmt: skip
    assert header.is_intact(frame, 0, len(frame), decoded.checksum)


@names
def test_golden_body_decodes_to_its_values(name: str) -> None:
    vector = VECTORS[name]
    assert vector.decode(golden(name)[header.HEADER_BYTES :]) == vector.value


def test_every_kind_has_a_vector_and_every_vector_is_tested() -> None:
    assert {vector.kind for vector in VECTORS.values()} == set(header.KIND_NAMES)
    assert {path.stem for path in FOLDER.glob("*.hex")} == set(VECTORS)


def test_domain_travels_as_the_start_of_its_sha_256() -> None:
    assert hash_domain("default") == DOMAIN

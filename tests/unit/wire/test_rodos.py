"""Messages of RODOS against golden bytes, and against a decoder that shares no code with ours.

The layout is that of RODOS's `api/netmsginfo.h`: 36 bytes, big-endian, and the checksum over all
behind itself.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.wire import rodos
from hubbub.wire.rodos import NetworkMessage, TopicList

FOLDER = Path(__file__).parents[2] / "vectors" / "rodos"
_PLAIN = NetworkMessage(-1, 0x8000_0005, 10, 0, 4711, 10**18 + 7, 0, 1001, b"21.5")
_LISTED = TopicList(4711, 7, (1001, 70000))
VECTORS = {
    "pub-sub": _PLAIN,
    "one-receiver": _PLAIN._replace(receiver=2, bitmap=4, sender=-5),
    "empty": _PLAIN._replace(receiver=-2, bitmap=0, data=b""),
    "full": _PLAIN._replace(data=bytes(range(256)) * 5 + bytes(20)),
    "topic-list": _PLAIN._replace(kind=1, topic=1, data=rodos.encode_list(_LISTED)),
    "topic-list-big": _PLAIN._replace(kind=1, topic=1, data=rodos.encode_list(_LISTED, "big")),
}
names = pytest.mark.parametrize("name", VECTORS)


def golden(name: str) -> bytes:
    return bytes.fromhex((FOLDER / f"{name}.hex").read_text())


def read_field_by_field(datagram: bytes) -> dict[str, Any]:
    """Read a datagram by the table of offsets, byte by byte."""

    def number(at: int, size: int, *, signed: bool = False) -> int:
        value = 0
        for byte in datagram[at : at + size]:
            value = value * 256 + byte
        return value - (1 << 8 * size) if signed and value >> 8 * size - 1 else value

    total = 0
    for byte in datagram[12:]:
        total = total // 2 + (32768 if total % 2 else 0)
        total = (total + byte) % 65536
    return {
        "receiverNode": number(0, 4, signed=True), "receiverNodesBitMap": number(4, 4),
        "maxStepsToForward": number(8, 2, signed=True), "checksum": number(10, 2),
        "type": number(12, 2), "len": number(14, 2), "senderNode": number(16, 4, signed=True),
        "sentTime": number(20, 8, signed=True), "senderThreadId": number(28, 4),
        "topicId": number(32, 4), "data": datagram[36:], "computed": total,
    }  # fmt: skip


@names
def test_message_encodes_to_the_golden_bytes_and_back(name: str) -> None:
    assert rodos.encode(VECTORS[name]).hex() == golden(name).hex()
    assert rodos.decode(golden(name)) == VECTORS[name]


@names
def test_golden_bytes_decode_field_by_field(name: str) -> None:
    message, fields = VECTORS[name], read_field_by_field(golden(name))
    assert fields["checksum"] == fields["computed"]
    assert fields["len"] == len(fields["data"]) == len(message.data)
    assert (
        fields["receiverNode"], fields["receiverNodesBitMap"], fields["maxStepsToForward"],
        fields["type"], fields["senderNode"], fields["sentTime"], fields["senderThreadId"],
        fields["topicId"], fields["data"],
    ) == message  # fmt: skip


def test_every_golden_file_is_tested() -> None:
    assert {path.stem for path in FOLDER.glob("*.hex")} == set(VECTORS)


def test_routers_may_change_the_routing_fields() -> None:
    datagram = golden("pub-sub")
    changed = rodos.decode(bytes(10) + datagram[10:])
    assert isinstance(changed, NetworkMessage)
    assert changed == _PLAIN._replace(receiver=0, bitmap=0, hops=0)


def test_topic_list_lies_as_the_c_structure_does() -> None:
    data = rodos.encode_list(_LISTED)
    assert len(data) == 252
    assert data[:4] == (4711).to_bytes(4, "little") and data[4] == 7
    assert data[5:9] == (2).to_bytes(4, "little")
    assert data[9:17] == (1001).to_bytes(4, "little") + (70000).to_bytes(4, "little")
    assert not any(data[17:])


@pytest.mark.parametrize("order", ["little", "big"])
def test_topic_list_is_read_in_either_byte_order(order: str) -> None:
    assert rodos.decode_list(rodos.encode_list(_LISTED, order), 4711) == _LISTED


def _forged(name: str, change: Callable[[bytearray], None]) -> bytes:
    datagram = bytearray(golden(name))
    change(datagram)
    check = rodos.checksum(bytes(datagram[12:])).to_bytes(2, "big")
    return bytes(datagram[:10]) + check + bytes(datagram[12:])


@pytest.mark.parametrize(
    ("datagram", "reason"),
    [
        (b"", "short"),
        (golden("pub-sub")[:35], "short"),
        (golden("pub-sub")[:-1], "length"),
        (golden("pub-sub") + b"x", "length"),
        (_forged("pub-sub", lambda d: d.__setitem__(slice(14, 16), b"\xff\xff")), "length"),
        (golden("pub-sub")[:-1] + b"6", "checksum"),
    ],
)
def test_hostile_datagram_is_refused(datagram: bytes, reason: str) -> None:
    assert rodos.decode(datagram) == reason


def test_message_that_is_too_long_is_refused() -> None:
    head, data = golden("pub-sub")[:36], bytes(1301)
    datagram = head[:14] + (1301).to_bytes(2, "big") + head[16:] + data
    assert rodos.decode(datagram) == "length"


@pytest.mark.parametrize(
    ("at", "value"),
    [(4, b"\x20"), (5, b"\x3d\x00\x00\x00"), (5, b"\xff\xff\xff\xff"), (0, b"\x00")],
)
def test_hostile_topic_list_is_refused(at: int, value: bytes) -> None:
    data = rodos.encode_list(_LISTED)
    forged = data[:at] + value + data[at + len(value) :]
    assert rodos.decode_list(forged, 4711) is None
    assert rodos.decode_list(data[:-1], 4711) is None


@given(st.binary(max_size=400))
def test_random_bytes_never_raise(data: bytes) -> None:
    assert isinstance(rodos.decode(data), str | NetworkMessage)
    rodos.decode_list(data, 0)


@given(st.binary(max_size=rodos.DATA_BYTES_MAX), st.integers(-(2**31), 2**31 - 1))
def test_any_payload_goes_there_and_back(data: bytes, sender: int) -> None:
    message = _PLAIN._replace(data=data, sender=sender)
    assert rodos.decode(rodos.encode(message)) == message

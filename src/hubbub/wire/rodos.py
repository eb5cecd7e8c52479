"""The NetworkMessage of RODOS: bytes <-> values.

A header of 36 bytes, big-endian, and at most 1300 of data. The checksum begins behind the routing
fields, so that routers may change those. The body of a TOPIC_LIST is a C structure in the byte
order of its sender, which only the number of the node tells: it is in the header, too.
"""

from struct import Struct
from typing import Final, NamedTuple

_HEAD: Final = Struct("!iIhHHHiqII")
HEAD_BYTES: Final = _HEAD.size
_HOPS_AT: Final = 8
_CHECKED_FROM: Final = 12
DATA_BYTES_MAX: Final = 1300

PUB_SUB: Final = 0
TOPIC_LIST: Final = 1
LIST_TOPIC: Final = 1  # Topic lists travel on this topic, to all.

HOPS: Final = 10
NODES_MAX: Final = 32  # As many as a bitmap has bits.
TOPICS_MAX: Final = 60  # In a list, which is always as long as if it were full.
LISTED_MAX: Final = TOPICS_MAX - 1  # RODOS never fills the last place.

_LISTS: Final = {"little": Struct("<IBI60I3x"), "big": Struct(">IBI60I3x")}
LIST_BYTES: Final = 252

assert HEAD_BYTES == 36
assert all(layout.size == LIST_BYTES for layout in _LISTS.values())


class NetworkMessage(NamedTuple):
    """One message of RODOS, without its length and checksum, which follow from the rest."""

    receiver: int
    bitmap: int
    hops: int
    kind: int
    sender: int
    sent_ns: int
    thread: int
    topic: int
    data: bytes


class TopicList(NamedTuple):
    """What a node subscribes to, and which bit it has."""

    node: int
    node_index: int
    topics: tuple[int, ...]


def checksum(data: bytes) -> int:
    """Rotate to the right and add, byte by byte, in 16 bits."""
    total = 0
    for byte in data:
        total = ((total >> 1 | (total & 1) << 15) + byte) & 0xFFFF
    return total


def encode(message: NetworkMessage) -> bytes:
    """Make the datagram of a message."""
    receiver, bitmap, hops, kind, sender, sent_ns, thread, topic, data = message
    assert len(data) <= DATA_BYTES_MAX
    rest = _HEAD.pack(
        receiver, bitmap, hops, 0, kind, len(data), sender, sent_ns, thread, topic
    )  # fmt: skip
    checked = rest[_CHECKED_FROM:] + data
    return rest[: _CHECKED_FROM - 2] + checksum(checked).to_bytes(2, "big") + checked


def decode(datagram: bytes) -> NetworkMessage | str:
    """Take a datagram apart; a text says why it is none."""
    if len(datagram) < HEAD_BYTES:
        return "short"
    receiver, bitmap, hops, stated, kind, size, sender, sent_ns, thread, topic = _HEAD.unpack_from(
        datagram
    )
    if size > DATA_BYTES_MAX or len(datagram) != HEAD_BYTES + size:
        return "length"
    if checksum(datagram[_CHECKED_FROM:]) != stated:
        return "checksum"
    data = datagram[HEAD_BYTES:]
    return NetworkMessage(receiver, bitmap, hops, kind, sender, sent_ns, thread, topic, data)


def with_a_hop_less(datagram: bytes, hops: int) -> bytes:
    """Return a datagram as a router passes it on; the checksum does not cover the hops."""
    return (
        datagram[:_HOPS_AT] + (hops - 1).to_bytes(2, "big", signed=True) + datagram[_HOPS_AT + 2 :]
    )


def encode_list(listed: TopicList, order: str = "little") -> bytes:
    """Make the data of a TOPIC_LIST."""
    assert len(listed.topics) <= LISTED_MAX and 0 <= listed.node_index < NODES_MAX
    places = (*listed.topics, *(0 for _ in range(TOPICS_MAX - len(listed.topics))))
    node = listed.node & 0xFFFF_FFFF
    return _LISTS[order].pack(node, listed.node_index, len(listed.topics), *places)


def decode_list(data: bytes, sender: int) -> TopicList | None:
    """Take the data of a TOPIC_LIST apart, in whichever byte order it names its sender."""
    if len(data) != LIST_BYTES:
        return None
    for layout in _LISTS.values():
        node, index, count, *topics = layout.unpack(data)
        if node == sender & 0xFFFF_FFFF and index < NODES_MAX and count <= TOPICS_MAX:
            return TopicList(node, index, tuple(topics[:count]))
    return None

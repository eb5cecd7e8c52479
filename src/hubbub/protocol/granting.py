"""How a grant is written: in as many frames as it takes, each of which says how many there are.

The sizes of topics and of what is replayed are bounds, so that no part is encoded to be measured.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from hubbub.protocol.peers import Debt, Peer
from hubbub.protocol.topics import OutgoingTopic
from hubbub.wire import control
from hubbub.wire.control import Grant, GrantedStream, Replayed, Topic

_OVERHEAD_BYTES: Final = 160
_REPLAYED_BYTES: Final = 40

Part = tuple[list[Topic], list[Replayed]]


def write_grant(
    peer: Peer, topics: Mapping[int, OutgoingTopic], replayed: Iterable[Replayed],
    streams: list[GrantedStream], grtt_us: int, body_bytes_max: int,
) -> list[bytes]:  # fmt: skip
    """Make the bodies of the frames that tell a peer what it is owed."""
    debt = peer.debt
    parts = _split(debt, topics, replayed, body_bytes_max - _OVERHEAD_BYTES)
    return [
        control.encode(
            Grant(
                peer.key, debt.number, debt.has_begun, debt.version, part, len(parts), grtt_us,
                streams, declared, debt.serial, replays,
            )
        )
        for part, (declared, replays) in enumerate(parts)
    ]  # fmt: skip


def _split(
    debt: Debt, topics: Mapping[int, OutgoingTopic], replayed: Iterable[Replayed], full: int
) -> list[Part]:
    """Split the owed topics, and what is replayed of them, into lists that fit a frame each."""
    parts, room = _split_topics(debt, topics, full)
    for one in replayed:
        if room < _REPLAYED_BYTES:
            parts.append(([], []))
            room = full
        room -= _REPLAYED_BYTES
        parts[-1][1].append(one)
    return parts


def _split_topics(
    debt: Debt, topics: Mapping[int, OutgoingTopic], full: int
) -> tuple[list[Part], int]:
    parts: list[Part] = [([], [])]
    room = full
    for number, first in debt.owed.items():
        topic, stream = topics[number], debt.placed[number][-1]
        size = topic.declared_bytes
        if size > room and parts[-1][0]:
            parts.append(([], []))
            room = full
        room -= size
        parts[-1][0].append(topic.declare(stream, first))
    return parts, room

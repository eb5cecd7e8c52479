"""One frame of each kind with fixed values: what the golden bytes beside this file must be.

After a change of the format that is meant, `python -m tests.vectors.frames` writes them anew; the
version in the header, docs/protocol.md and the changelog change with them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from hubbub.wire import batch, control, gateways, header, services, timed
from hubbub.wire.control import (
    PUBLISHES,
    WANTS_NO_MORE,
    Change,
    Goodbye,
    Grant,
    GrantedStream,
    Heartbeat,
    Hello,
    Lost,
    Nak,
    PlacedHello,
    Publication,
    Replayed,
    Skip,
    Status,
    Step,
    Tail,
    Topic,
    Want,
)
from hubbub.wire.gateways import Beacon
from hubbub.wire.payloads import join
from hubbub.wire.services import (
    BATCH,
    CHANGE_SERVICE_MANAGER,
    NOTHING,
    PING,
    PUBLISH,
    RETAIN,
    SUBSCRIBE_SERVICE,
    TAKEN,
    Answer,
    Copy,
    Entry,
    Extra,
    Inquiry,
    Inventory,
    Kept,
    Known,
    ListTaken,
    Managed,
    Members,
    Message,
    Query,
    Record,
    Reply,
    Request,
    Result,
    join_ids,
    service_key,
)
from hubbub.wire.timed import (
    ANSWERS,
    ONE,
    SYNCHRONISED,
    ClockExchange,
    Direct,
    Interest,
    Offer,
    Response,
    Wanted,
    make_origin,
)
from hubbub.wire.wishes import encode_links, stream_by

FOLDER = Path(__file__).parent
KEY = header.make_key(b"abcdefghijkl", 0x0102030405060708)
OTHER = header.make_key(b"ABCDEFGHIJKL", 0x1112131415161718)
DOMAIN = 0x37A8EEC1  # "default"
HOP_LIMIT = 8
PACKET = 0x2122232425262728
SENT_US = 0x31323334
TOPIC = Topic(16, header.RELIABLE, "/plant/temp", 7, "Temperature", 2**64 - 2)
_TCP_OR_GROUP = ("tcp", "multicast")
INSISTED = Topic(
    19, stream_by(header.RELIABLE, _TCP_OR_GROUP), "/plant/temp", 7, "Temperature", 2**64 - 2,
    links=encode_links(_TCP_OR_GROUP),
)  # fmt: skip
STRIDE = 1274


class Vector(NamedTuple):
    """A frame: what stands in its header, its body, and what that body must decode to.

    `receivers` are receiver field and bitmap; None: not known, so the bitmap is open.
    """

    kind: int
    flags: int
    stream: int
    sequence: int
    body: bytes
    value: Any
    decode: Callable[[bytes], Any]
    receivers: tuple[int, int] | None = None


def decode_data(body: bytes) -> batch.Batch | None:
    """Read the body of a DATA frame."""
    return batch.decode(body, 0, len(body))


def decode_segment(body: bytes) -> batch.Segment | None:
    """Read the body of a SEGMENT frame."""
    return batch.decode_segment(body, 0, len(body))


def _typed(value: Any) -> tuple[bytes, Any, Callable[[bytes], Any]]:
    return control.encode(value), value, lambda body: control.decode(type(value), body)


_BATCH = batch.Batch(
    [(16, 7, 2), (17, 2**40, 1)], [b"21.5", b"", b"on"], (10**18, 10**18 + 1000, 10**18 + 5), b""
)
_DECLARING = batch.Batch([(16, 7, 1)], [b"21.5"], (10**18,), control.encode_declarations([TOPIC]))
_REPLAYED = batch.Batch(
    [(16, 7, 1)], [b"21.5"], (10**18,),
    control.encode_declarations([msgspec.structs.replace(TOPIC, replayed_ns=2 * 10**18)]),
)  # fmt: skip
_RELAYED = batch.Batch(
    [(16, 7, 1)], [b"21.5"], (10**18,),
    control.encode_declarations([
        msgspec.structs.replace(TOPIC, origin=OTHER, origin_name="lidar-7", hops=2)
    ]),
)  # fmt: skip
_BEACON = Beacon(OTHER[:12], 2, KEY[:12], 1, True, False)
_SEGMENT = batch.Segment(16, 8, 10**18, 3000, 2 * STRIDE, STRIDE, bytes(range(226)) * 2)
_STATUS = Status(OTHER, 3, 5, 1000, 1010, 1 << 20, SENT_US, 250)
_HEARTBEAT = Heartbeat(5, 2000, [Tail(1, 1011, 3, True), Tail(3, 12, 0, False)], 6)
_NAK_RANGES = Nak(OTHER, [(1000, 3), (2**40, 1)])
_NAK_BITMAP = Nak(OTHER, [(1000, 1), (1002, 2), (1009, 1)])
_SKIP = Skip(OTHER, [(900, 5)])
_LOST = Lost(OTHER, "too_slow", [(1000, 2)], [(16, 7, 2), (17, 9, 1)])
_HELLO = Hello(
    "lidar-7", "host", 4242, "default", 5, 0, 1,
    ["/plant/*/temp", "@0 /x/...", "@28 /x/...", "/x/...", "3 0 /x/..."], 1 << 20,
    [1, 2**31], False, version=9,
    publications=[
        Publication("/plant/temp", header.RELIABLE, "Temperature", 2**64 - 2, 6),
        Publication("/plant/rate", header.BEST_EFFORT, "", 0, 0, encode_links(["tcp"])),
    ],
    index=6, release="0.1.0", uptime_s=3600,
    links=encode_links(["inproc", "local", "tcp", "multicast"]),
)  # fmt: skip
_PLACED_HELLO = PlacedHello(**msgspec.structs.asdict(_HELLO), datagram_port=40_123)
_CHANGE = Change(9, [
    Step(
        PUBLISHES, "/plant/rate", header.BEST_EFFORT, "float", 2**40, 0,
        encode_links(["local", "multicast"]),
    ),
    Step(WANTS_NO_MORE, "/x/..."),
])  # fmt: skip
_GRANT = Grant(
    OTHER, 3, True, 5, 0, 1, 2000,
    [
        GrantedStream(1, 1000, 3, True), GrantedStream(3, 0, 1, False),
        GrantedStream(stream_by(header.RELIABLE, ("tcp", "multicast")), 8, 1, True),
    ],
    [TOPIC, INSISTED], 7, [Replayed(18, 16, 3, 5, 7)],
)  # fmt: skip

_INTEREST = Interest(
    b"abcdefghijkl", 0, 0, 1, 1, 12, 3000, ONE, 7,
    [Wanted(2, 100_000, 40, 1), Wanted(3, 150_000)], "/vehicle/speed",
)  # fmt: skip
_RESPONSE = Response(
    make_origin(b"abcdefghijkl", 4), 0, 1, 1, SYNCHRONISED, 2, 2**40, 10**18, 10**18 + 1000,
    50_000, b"13.9",
)  # fmt: skip
_OFFER = Offer(
    b"abcdefghijkl", 4, 0, 1, 1, 12, True, "/vehicle/speed", 1, 50_000, 1000, 20_000, 2, 1000, 3, 7
)
_DIRECT = Direct(b"abcdefghijkl", 4, 9, b"ABCDEFGHIJKL", 1, b"stop")
_CLOCK = ClockExchange(ANSWERS, OTHER, 1, 2**40, 10**18, 10**18 + 500, 20)

_KEY = service_key("hype-news")
_NODE = b"abcdefghijkl"
_OTHER_NODE = b"ABCDEFGHIJKL"
_PLACE = ("10.0.0.7", 7266)
_SUBSCRIBE = Request(
    7, 0, 0, _NODE, 2**40, 10**15, 3, 30_000, 0, Message(SUBSCRIBE_SERVICE, _KEY),
    Extra(_PLACE, "hype-news", b"token"),
)  # fmt: skip
_PUBLISH = Request(
    8, RETAIN, 1, _NODE, 2**40, 5, 0, 0, 0, Message(PUBLISH, _KEY, b"HelloHypeWorld"), NOTHING
)
_PUBLISH_BATCH = Request(
    10, BATCH, 0, _NODE, 2**40, 6, 0, 0, 0, Message(PUBLISH, _KEY, join([b"21.5", b"", b"22"])),
    NOTHING,
)  # fmt: skip
_ENTRIES = [Entry(_NODE, 10**15, True, 1, _PLACE), Entry(_OTHER_NODE, 5, False)]
_CHANGE_MANAGER = Request(
    9, 0, 0, _NODE, 2**40, 6, 4, 0, 0,
    Message(CHANGE_SERVICE_MANAGER, _KEY, join_ids(_OTHER_NODE, [_NODE, _OTHER_NODE])),
    Extra(name="hype-news", part=1, parts=2, entries=_ENTRIES, last_order=77),
)  # fmt: skip
_RECORD = Record(_NODE, "10.0.0.7", 7266, 10**15, 2**40, 1, 3)
_ANSWERS = ([Answer(7, TAKEN, 4, 77, _OTHER_NODE), Answer(8, 2)], [_RECORD])
_MEMBERS = Members(PING, 5, _OTHER_NODE, 2**60, [_RECORD])
_NOTICES = {
    "result": Result(_KEY, SUBSCRIBE_SERVICE, 10**15, TAKEN, 4, 77),
    "query": Query(_KEY),
    "known": Known(_KEY, 1, _OTHER_NODE, True),
    "copy": Copy(_KEY, "hype-news", 4, 77, 1, 2**31, True, _ENTRIES),
    "list-taken": ListTaken(_KEY, 4, 5),
    "reply": Reply(_KEY, 5, b"42"),
    "inquiry": Inquiry(3),
    "inquiry-listing": Inquiry(2**31 + 1, _KEY, is_listing=True),
    "inventory": Inventory(3, [Managed(_KEY, "hype-news", 4, 77, 2)]),
    "inventory-listing": Inventory(
        2**31 + 1, [Managed(_KEY, "hype-news", 4, 77, 2)], [], [_NODE, bytes(12)]
    ),
    "kept": Kept(_KEY, 4, 77, _NODE, 2**40, 5, 3_600_000, b"21.5"),
}


def decode_response(body: bytes) -> timed.Response | None:
    """Read the body of a RESPONSE frame."""
    return timed.decode_response(body, 0, len(body))


def _timed(value: Any) -> tuple[bytes, Any, Callable[[bytes], Any]]:
    return timed.encode_timed(value), value, lambda body: timed.decode_timed(type(value), body)


def _service(request: Request) -> tuple[bytes, Any, Callable[[bytes], Any]]:
    return services.encode_request(request), request, services.decode_request


def _notice(notice: Any) -> tuple[bytes, Any, Callable[[bytes], Any]]:
    return services.encode_notice(7, notice), (7, notice), services.decode_notice


VECTORS = {
    "data": Vector(
        header.DATA, 0, 1, 1000, batch.encode(_BATCH.runs, _BATCH.payloads, _BATCH.published_ns),
        _BATCH, decode_data, (header.MANY, 0x8000_0000_0000_0025),
    ),
    "data-declares": Vector(
        header.DATA, header.DECLARES | header.ASK, 1, 1001, batch.encode(*_DECLARING), _DECLARING,
        decode_data,
    ),
    "data-declares-replayed": Vector(
        header.DATA, header.DECLARES, 1, 1001, batch.encode(*_REPLAYED), _REPLAYED, decode_data,
    ),
    "data-declares-relayed": Vector(
        header.DATA, header.DECLARES, 1, 1001, batch.encode(*_RELAYED), _RELAYED, decode_data,
    ),
    "data-repair": Vector(
        header.DATA, header.REPAIR, 1, 1000,
        batch.encode(_BATCH.runs, _BATCH.payloads, _BATCH.published_ns), _BATCH, decode_data,
    ),
    "segment": Vector(
        header.SEGMENT, 0, 1, 1002, batch.encode_segment_head(*_SEGMENT[:-1]) + _SEGMENT.data,
        _SEGMENT, decode_segment, (5, 1 << 5),
    ),
    "heartbeat": Vector(
        header.HEARTBEAT, 0, 0, 0, control.encode_heartbeat(_HEARTBEAT), _HEARTBEAT,
        control.decode_heartbeat,
    ),
    "status": Vector(
        header.STATUS, 0, 1, 0, control.encode_status(_STATUS), _STATUS, control.decode_status
    ),
    "status-refuses": Vector(
        header.STATUS, header.REFUSES, 1, 0,
        control.encode_status(_STATUS._replace(contiguous=0, highest=0)),
        _STATUS._replace(contiguous=0, highest=0), control.decode_status,
    ),
    "nak-ranges": Vector(
        header.NAK, 0, 1, 0, control.encode_nak(OTHER, [1000, 1001, 1002, 2**40], 1000),
        _NAK_RANGES, control.decode_nak,
    ),
    "nak-bitmap": Vector(
        header.NAK, 0, 1, 0, control.encode_nak(OTHER, [1000, 1002, 1003, 1009], 1000),
        _NAK_BITMAP, control.decode_nak,
    ),
    "skip": Vector(
        header.SKIP, 0, 1, 0, control.encode_skip(OTHER, _SKIP.ranges), _SKIP, control.decode_skip
    ),
    "lost": Vector(header.LOST, 0, 1, 0, control.encode_lost(_LOST), _LOST, control.decode_lost),
    "hello": Vector(header.HELLO, 0, 0, 0, *_typed(_HELLO)),
    "hello-placed": Vector(header.HELLO, 0, 0, 0, *_typed(_PLACED_HELLO)),
    "want": Vector(header.WANT, 0, 0, 0, *_typed(Want(OTHER))),
    "grant": Vector(header.GRANT, 0, 0, 0, *_typed(_GRANT)),
    "change": Vector(header.CHANGE, 0, 0, 0, *_typed(_CHANGE)),
    "goodbye": Vector(header.GOODBYE, 0, 0, 0, *_typed(Goodbye([(1, 1003), (3, 12)]))),
    "interest": Vector(header.INTEREST, 0, 0, 0, *_timed(_INTEREST)),
    "response": Vector(
        header.RESPONSE, 0, 0, 0, timed.encode_response(_RESPONSE), _RESPONSE, decode_response
    ),
    "offer": Vector(header.OFFER, 0, 0, 0, *_timed(_OFFER)),
    "direct": Vector(header.DIRECT, 0, 0, 0, *_timed(_DIRECT)),
    "clock": Vector(header.CLOCK, 0, 0, 0, timed.encode_clock(_CLOCK), _CLOCK, timed.decode_clock),
    "service-subscribe": Vector(header.SERVICE, 0, 0, 0, *_service(_SUBSCRIBE)),
    "service-publish": Vector(header.SERVICE, 0, 0, 0, *_service(_PUBLISH)),
    "service-batch": Vector(header.SERVICE, 0, 0, 0, *_service(_PUBLISH_BATCH)),
    "service-change": Vector(header.SERVICE, 0, 0, 0, *_service(_CHANGE_MANAGER)),
    "answer": Vector(
        header.ANSWER, 0, 0, 0, services.encode_answers(*_ANSWERS), _ANSWERS,
        services.decode_answers,
    ),
    "beacon": Vector(
        header.BEACON, 0, 0, 0, gateways.encode_beacon(_BEACON), _BEACON, gateways.decode_beacon,
    ),
    "members": Vector(
        header.MEMBERS, 0, 0, 0, services.encode_members(_MEMBERS), _MEMBERS,
        services.decode_members,
    ),
    **{
        f"notice-{name}": Vector(header.NOTICE, 0, 0, 0, *_notice(notice))
        for name, notice in _NOTICES.items()
    },
}  # fmt: skip


def read_receivers(vector: Vector) -> tuple[int, int, int]:
    """Return flags, receiver field and bitmap of a vector."""
    if vector.receivers is None:
        return vector.flags | header.OPEN_BITMAP, header.MANY, 0
    return vector.flags, *vector.receivers


def encode(vector: Vector) -> bytes:
    """Make the frame of a vector."""
    flags, receiver, bitmap = read_receivers(vector)
    shared = header.prefix(
        vector.kind, flags, vector.stream, DOMAIN, KEY, HOP_LIMIT, receiver, bitmap
    )
    finished = header.finish(shared, vector.sequence, PACKET, SENT_US, vector.body)
    return finished + vector.body


def golden(name: str) -> bytes:
    """Read the frame that was written down."""
    return bytes.fromhex((FOLDER / f"{name}.hex").read_text())


def write() -> None:
    """Write all golden bytes, 32 a line."""
    for name, vector in VECTORS.items():
        frame = encode(vector)
        lines = [frame[at : at + 32].hex(" ", -4) for at in range(0, len(frame), 32)]
        (FOLDER / f"{name}.hex").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    write()

"""HOT. Records in a stream of bytes: bursts of frames, each behind a head that tells its length.

The other end is not trusted: a length that no burst has ends the stream, because nothing that
follows it could be found. So does what becomes larger, unpacked, than a record may be, or than all
that comes by one read.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final

from hubbub.limits import RECORD_BYTES_MAX, UNPACKED_BYTES_MAX
from hubbub.wire.header import HEADER_BYTES

_HEAD: Final = Struct("!IH")  # Bytes that follow, and the size of each frame but the last (or 0).
HEAD_BYTES: Final = _HEAD.size
_PACKED: Final = 1 << 31  # In a length: what follows is packed.

_NO_RECORD: Final = "it sent what is no record"
_BOMB: Final = "it sent what becomes too large, or nothing, when it is unpacked"


def encode_head(size_bytes: int, segment_bytes: int) -> bytes:
    """Make what goes before a burst."""
    return _HEAD.pack(size_bytes, segment_bytes)


def encode_packed(record: bytes, packed: bytes) -> bytes:
    """Make a record of the packed body of another."""
    _, segment_bytes = _HEAD.unpack_from(record)
    return _HEAD.pack(_PACKED | len(packed), segment_bytes) + packed


class RecordReader:
    """Puts records together from whatever pieces they come in."""

    __slots__ = ("_rest", "_unpacked_bytes", "fault", "unpack")

    def __init__(self) -> None:
        self._rest = b""
        self._unpacked_bytes = 0
        self.fault = ""  # For good: what came that is no record.
        self.unpack: Callable[[bytes], bytes | None] | None = None  # None: nothing may be packed.

    def feed(self, data: bytes) -> list[tuple[bytes, int]]:
        """Take the next bytes; return the bursts that are complete, each with its segment size."""
        if self._rest:
            data = self._rest + data
        records = []
        at, size = 0, len(data)
        self._unpacked_bytes = 0
        while size - at >= HEAD_BYTES and not self.fault:
            length, segment_bytes = _HEAD.unpack_from(data, at)
            begin = at + HEAD_BYTES
            if length > RECORD_BYTES_MAX and self.unpack is not None:
                length ^= _PACKED
                is_packed, is_sound = True, 0 < length <= RECORD_BYTES_MAX
            else:
                is_packed, is_sound = False, _is_plausible(length, segment_bytes)
            if not is_sound:
                self.fault = _NO_RECORD
            elif begin + length > size:
                break
            else:
                at = begin + length
                body = data[begin:at]
                if is_packed:
                    body = self._unpack(body, segment_bytes)
                records.append((body, segment_bytes))
        self._rest = b"" if self.fault else data[at:]
        return records[:-1] if self.fault == _BOMB else records

    def _unpack(self, packed: bytes, segment_bytes: int) -> bytes:
        """Unpack a body, unless that would take more than it may."""
        assert self.unpack is not None
        body = self.unpack(packed) or b""
        self._unpacked_bytes += len(body)
        if self._unpacked_bytes > UNPACKED_BYTES_MAX or not _is_plausible(len(body), segment_bytes):
            self.fault = _BOMB
        return body


def _is_plausible(length: int, segment_bytes: int) -> bool:
    if not HEADER_BYTES <= length <= RECORD_BYTES_MAX:
        return False
    return segment_bytes == 0 or HEADER_BYTES <= segment_bytes < length

"""HOT. Records in a stream of bytes: bursts of frames, each behind a head that tells its length.

The other end is not trusted: a length that no burst has ends the stream, because nothing that
follows it could be found.
"""

from struct import Struct
from typing import Final

from hubbub.limits import RECORD_BYTES_MAX
from hubbub.wire.header import HEADER_BYTES

_HEAD: Final = Struct("!IH")  # Bytes that follow, and the size of each frame but the last (or 0).
HEAD_BYTES: Final = _HEAD.size


def encode_head(size_bytes: int, segment_bytes: int) -> bytes:
    """Make what goes before a burst."""
    return _HEAD.pack(size_bytes, segment_bytes)


class RecordReader:
    """Puts records together from whatever pieces they come in."""

    __slots__ = ("_rest", "is_broken")

    def __init__(self) -> None:
        self._rest = b""
        self.is_broken = False  # For good: something came that is no record.

    def feed(self, data: bytes) -> list[tuple[bytes, int]]:
        """Take the next bytes; return the bursts that are complete, each with its segment size."""
        if self._rest:
            data = self._rest + data
        records = []
        at, size = 0, len(data)
        while size - at >= HEAD_BYTES and not self.is_broken:
            length, segment_bytes = _HEAD.unpack_from(data, at)
            begin = at + HEAD_BYTES
            if not _is_plausible(length, segment_bytes):
                self.is_broken = True
            elif begin + length > size:
                break
            else:
                at = begin + length
                records.append((data[begin:at], segment_bytes))
        self._rest = b"" if self.is_broken else data[at:]
        return records


def _is_plausible(length: int, segment_bytes: int) -> bool:
    if not HEADER_BYTES <= length <= RECORD_BYTES_MAX:
        return False
    return segment_bytes == 0 or HEADER_BYTES <= segment_bytes < length

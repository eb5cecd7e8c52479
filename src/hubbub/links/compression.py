"""Records made smaller, each by itself: what one of them does to a receiver is bounded by its size.

Why not a stream that remembers what went before: it would make small records smaller, but how much
comes out of so many bytes could not be known before it has.
"""

import zlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from hubbub.errors import ConfigurationError
from hubbub.limits import PACKED_BYTES_MIN, RECORD_BYTES_MAX

ZLIB: Final = "zlib"
ZSTD: Final = "zstd"
CODECS: Final = (ZLIB, ZSTD)
_LEVEL: Final = 1  # The time counts more than the last byte.

# In a greeting: what a node offers, in the upper half of the byte of the version.
_BITS: Final = {ZLIB: 0x10, ZSTD: 0x20}
OFFERS: Final = 0xF0


class Codec(NamedTuple):
    """A way to make records smaller; `unpack` returns None for what is none, or is too large."""

    name: str
    pack: Callable[[bytes], bytes]
    unpack: Callable[[bytes], bytes | None]


def make_codecs(compress: str) -> dict[str, Codec]:
    """Return what a node offers, given what it was asked for."""
    if not compress:
        return {}
    codecs = {ZLIB: Codec(ZLIB, _pack_zlib, _unpack_zlib)}
    if compress == ZSTD:
        codecs[ZSTD] = _make_zstd()
    return codecs


def offer(codecs: dict[str, Codec]) -> int:
    """Say what we have, as a greeting does."""
    return sum(_BITS[name] for name in codecs)


def agree(codecs: dict[str, Codec], offered: int) -> Codec | None:
    """Choose what both ends have, the better of two; both choose the same."""
    common = [name for name in CODECS if name in codecs and offered & _BITS[name]]
    return codecs[common[-1]] if common else None


def pack(codec: Codec, body: bytes) -> bytes | None:
    """Make the body of a record smaller; None: it is not worth it."""
    if len(body) < PACKED_BYTES_MIN:
        return None
    packed = codec.pack(body)
    return packed if len(packed) < len(body) else None


def _pack_zlib(body: bytes) -> bytes:
    return zlib.compress(body, _LEVEL)


def _unpack_zlib(packed: bytes) -> bytes | None:
    reader = zlib.decompressobj()
    try:
        body = reader.decompress(packed, RECORD_BYTES_MAX)
    except zlib.error:
        return None
    return body if reader.eof and not reader.unused_data else None


def _make_zstd() -> Codec:
    zstandard = find_zstd()
    if zstandard is None:
        raise ConfigurationError("compress='zstd' needs zstandard: pip install zstandard")
    packer = zstandard.ZstdCompressor(level=_LEVEL)
    unpacker = zstandard.ZstdDecompressor()

    def unpack(packed: bytes) -> bytes | None:
        try:
            size_bytes = zstandard.frame_content_size(packed)
            if not 0 < size_bytes <= RECORD_BYTES_MAX:  # It may say that it does not know.
                return None
            body: bytes = unpacker.decompress(packed, allow_extra_data=False)
        except zstandard.ZstdError:
            return None
        return body

    return Codec(ZSTD, packer.compress, unpack)


def find_zstd() -> Any:
    """Return the package for zstd, if it is there."""
    try:
        import zstandard  # Of those who ask for it.
    except ImportError:
        return None
    return zstandard

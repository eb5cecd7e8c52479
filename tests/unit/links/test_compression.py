"""Records that are packed: agreed on by both ends, whole again at the other, and no bomb."""

import zlib
from random import Random

import pytest

from hubbub.limits import PACKED_BYTES_MIN, RECORD_BYTES_MAX, UNPACKED_BYTES_MAX
from hubbub.links.compression import CODECS, Codec, agree, find_zstd, make_codecs, offer, pack
from hubbub.links.records import HEAD_BYTES, RecordReader, encode_head, encode_packed
from hubbub.links.tcp import TcpLink
from hubbub.links.tcp_options import TcpOptions
from hubbub.protocol.burst import Pipes
from tests.unit.links.test_tcp import A, B, meet, pump
from tests.unit.links.test_tcp_options import Open, open_link

__all__ = ["open_link"]  # A fixture.

needs_zstd = pytest.mark.skipif(find_zstd() is None, reason="zstandard is not installed")
EACH = [pytest.param(name, marks=[needs_zstd] if name == "zstd" else []) for name in CODECS]
BURSTS = [(b"a" * 1000, 0), (Random(7).randbytes(2000), 500), (b"bc" * 40_000, 1000)]


def codec_of(name: str) -> Codec:
    return make_codecs(name)[name]


def reader_of(codec: Codec) -> RecordReader:
    reader = RecordReader()
    reader.unpack = codec.unpack
    return reader


def encode(codec: Codec, body: bytes, segment_bytes: int) -> bytes:
    record = encode_head(len(body), segment_bytes) + body
    packed = pack(codec, body)
    return record if packed is None else encode_packed(record, packed)


@pytest.mark.parametrize("name", EACH)
def test_packed_records_are_whole_again_however_they_are_cut(name: str) -> None:
    codec = codec_of(name)
    stream = b"".join(encode(codec, *burst) for burst in BURSTS)
    assert len(stream) < 3000
    for at in range(0, len(stream) + 1, 7):
        reader = reader_of(codec)
        assert reader.feed(stream[:at]) + reader.feed(stream[at:]) == BURSTS
        assert not reader.fault


@pytest.mark.parametrize("name", EACH)
def test_what_is_small_or_does_not_get_smaller_goes_as_it_is(name: str) -> None:
    codec = codec_of(name)
    assert pack(codec, bytes(PACKED_BYTES_MIN - 1)) is None
    assert pack(codec, bytes(PACKED_BYTES_MIN)) is not None
    assert pack(codec, Random(7).randbytes(5000)) is None


def bombs(codec: Codec) -> list[bytes]:
    """Make bodies that no record has: too large, cut short, with something behind, too small."""
    sound = codec.pack(bytes(1000))
    return [
        codec.pack(bytes(RECORD_BYTES_MAX + 1)), codec.pack(bytes(10 << 20)), sound[:-1],
        sound + b"x", sound + sound, codec.pack(b"tiny"), b"x" * 50, codec.pack(b""),
    ]  # fmt: skip


@pytest.mark.parametrize("name", EACH)
def test_bomb_ends_the_stream_before_it_is_unpacked(name: str) -> None:
    codec = codec_of(name)
    before = encode(codec, *BURSTS[0])
    for bomb in bombs(codec):
        reader = reader_of(codec)
        packed = encode_packed(encode_head(1000, 0) + bytes(1000), bomb)
        assert reader.feed(before + packed + before) == BURSTS[:1]
        assert "becomes too large" in reader.fault
        assert reader.feed(before) == []


@needs_zstd
def test_size_that_a_frame_of_zstd_keeps_to_itself_is_none() -> None:
    codec, zstandard = codec_of("zstd"), find_zstd()
    silent = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1000))
    assert codec.unpack(silent) is None
    assert codec.unpack(codec.pack(bytes(1000))) == bytes(1000)


def test_many_small_records_that_become_too_much_together_are_a_bomb() -> None:
    codec = codec_of("zlib")
    record = encode(codec, bytes(RECORD_BYTES_MAX), 0)
    count = UNPACKED_BYTES_MAX // RECORD_BYTES_MAX
    reader = reader_of(codec)
    assert len(reader.feed(record * count)) == count and not reader.fault
    assert len(reader.feed(record * (count + 1))) == count and reader.fault


def test_packed_record_that_was_not_agreed_on_ends_the_stream() -> None:
    reader = RecordReader()
    assert reader.feed(encode(codec_of("zlib"), *BURSTS[0])) == []
    assert reader.fault == "it sent what is no record"


@pytest.mark.parametrize(
    ("ours", "theirs", "chosen"),
    [("zlib", "zlib", "zlib"), ("zlib", "", None), ("", "zlib", None),
     pytest.param("zstd", "zlib", "zlib", marks=needs_zstd),
     pytest.param("zstd", "zstd", "zstd", marks=needs_zstd)],
)  # fmt: skip
def test_both_ends_choose_what_both_have(
    open_link: Open, ours: str, theirs: str, chosen: str | None
) -> None:
    for one, other in ((ours, theirs), (theirs, ours)):
        codec = agree(make_codecs(one), offer(make_codecs(other)))
        assert (codec and codec.name) == chosen
    first = open_link(A, TcpOptions(compress=ours))
    second = open_link(B, TcpOptions(compress=theirs), first)
    meet(first, second)
    for data, segment_bytes in BURSTS:
        first.send(Pipes((B,)), [data[:10], memoryview(data)[10:]], segment_bytes)
    received = pump([first, second], lambda: second.statistics().packets_in == len(BURSTS))
    assert [one[:2] for one in received] == BURSTS
    assert (first.statistics().saved_bytes_out > 80_000) == (chosen is not None)
    sent_bytes = first.statistics().bytes_out + first.statistics().saved_bytes_out
    assert sent_bytes == sum(len(data) + HEAD_BYTES for data, _ in BURSTS)


def test_bomb_is_refused_and_counted(open_link: Open) -> None:
    links: list[TcpLink] = [open_link(A, TcpOptions(compress="zlib"))]
    links.append(open_link(B, TcpOptions(compress="zlib"), links[0]))
    meet(*links)
    codec = links[1]._pipes[A].codec
    assert codec is not None
    bomb = zlib.compress(bytes(10 << 20))
    links[1]._pipes[A].codec = codec._replace(pack=lambda _: bomb)
    links[1].send(Pipes((A,)), [bytes(100_000)], 0)
    pump(links, lambda: links[0].refusals.count)
    assert "becomes too large" in links[0].refusals.untold[0].reason
    assert list(links[0].closed) == [(B, False)] and links[0].statistics().packets_in == 0

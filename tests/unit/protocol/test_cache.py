"""The retransmission cache: bounded by bytes and by age, and it remembers what it forgot."""

from hubbub.limits import FRAME_COST_BYTES, RUN_TABLES_MAX
from hubbub.protocol.cache import Cache
from hubbub.wire import batch
from hubbub.wire.header import DATA, DECLARES, SEGMENT


def body(first: int, size: int = 100) -> bytes:
    return batch.encode([(16, first, 1)], [bytes(size)], [0])


SIZE = len(body(1))


def fill(cache: Cache, count: int, *, now: int = 0, first: int = 1) -> int:
    position = 0
    for sequence in range(first, first + count):
        position = cache.add(now, sequence, position, body(sequence), 0)
    return position


def test_position_counts_bytes_as_a_socket_buffer_does() -> None:
    cache = Cache(10_000, 10)
    assert fill(cache, 3) == 3 * (SIZE + FRAME_COST_BYTES)
    assert cache.positions[2] == SIZE + FRAME_COST_BYTES
    assert cache.size_bytes == 3 * SIZE


def test_oldest_frames_are_evicted_at_the_byte_bound_but_their_runs_stay() -> None:
    cache = Cache(5 * SIZE, 10)
    fill(cache, 8)
    assert sorted(cache.bodies) == [4, 5, 6, 7, 8]
    assert (cache.first, cache.evicted) == (4, 3)
    assert cache.runs_of(2) == [(16, 2, 1)]
    assert cache.runs_of(5) == [(16, 5, 1)] and cache.runs_of(99) == []


def test_frame_larger_than_the_whole_cache_is_kept_until_the_next() -> None:
    cache = Cache(10, 10)
    fill(cache, 1)
    assert list(cache.bodies) == [1]
    fill(cache, 1, first=2)
    assert list(cache.bodies) == [2]


def test_old_frames_expire() -> None:
    cache = Cache(10_000, 100)
    fill(cache, 2, now=0)
    fill(cache, 2, now=50, first=3)
    cache.expire(100)
    assert len(cache.bodies) == 4
    cache.expire(101)
    assert sorted(cache.bodies) == [3, 4] and cache.runs_of(1) == [(16, 1, 1)]
    cache.expire(1000)
    assert cache.first is None and cache.size_bytes == 0


def test_acknowledged_frames_are_forgotten_without_a_trace() -> None:
    cache = Cache(10_000, 100)
    fill(cache, 5)
    cache.acknowledge(4)
    assert sorted(cache.bodies) == [4, 5] and cache.first == 4
    assert cache.runs_of(1) == []
    cache.acknowledge(2)
    cache.acknowledge(99)
    assert cache.first is None and cache.size_bytes == 0
    fill(cache, 1, first=6)
    assert cache.first == 6


def test_pieces_of_large_messages_are_kept_by_reference() -> None:
    cache = Cache(10_000, 100)
    message = bytes(3000)
    head = batch.encode_segment_head(16, 7, 0, 3000, 0, 1000)
    cache.add(0, 1, 0, (head, memoryview(message)[:1000]), 0)
    cache.add(0, 2, 0, body(8), DECLARES)
    assert (cache.kind_of(1), cache.kind_of(2)) == (SEGMENT, DATA)
    assert cache.flags == {2: DECLARES}
    cache.expire(101)
    assert cache.runs_of(1) == [(16, 7, 1)]
    assert not cache.flags and not cache.positions and not cache.sent_ns


def test_memory_of_evicted_frames_is_bounded() -> None:
    cache = Cache(1, 100)
    for sequence in range(1, RUN_TABLES_MAX + 20):
        cache.add(0, sequence, 0, body(sequence, 0), 0)
    assert len(cache.run_tables) == RUN_TABLES_MAX
    assert cache.runs_of(1) == [] and cache.runs_of(RUN_TABLES_MAX) != []

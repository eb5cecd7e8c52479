"""The retransmission cache: bounded by bytes and by age, and it remembers what it forgot."""

import pytest

from hubbub.limits import FRAME_COST_BYTES, RUN_TABLES_MAX
from hubbub.protocol.cache import Cache
from hubbub.wire import batch
from hubbub.wire.header import DATA, DECLARES, SEGMENT
from hubbub.wire.train import Train


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
    assert not cache.flags and not cache.positions and len(cache) == 0


def test_memory_of_evicted_frames_is_bounded() -> None:
    cache = Cache(1, 100)
    for sequence in range(1, RUN_TABLES_MAX + 20):
        cache.add(0, sequence, 0, body(sequence, 0), 0)
    assert len(cache.run_tables) == RUN_TABLES_MAX
    assert cache.runs_of(1) == [] and cache.runs_of(RUN_TABLES_MAX) != []


def fill_mixed(cache: Cache, *, in_trains: bool) -> int:
    """Keep two frames, a train of four, one frame and a train of two: numbers 1 to 9."""
    position, sequence = 0, 1
    for now, part in enumerate((2, Train(ABOUT, MESSAGE, 500, 0, 4), 1, CONTINUED)):
        if isinstance(part, Train) and in_trains:
            position = cache.add_train(now, sequence, position, part)
            sequence += part.frames
            continue
        for number in range(part.frames if isinstance(part, Train) else part):
            one = part.body(number) if isinstance(part, Train) else body(sequence)
            position = cache.add(now, sequence, position, one, 0)
            sequence += 1
    return position


ABOUT = (16, 7, 12345, 4000)
MESSAGE = bytes(range(250)) * 16
CONTINUED = Train(ABOUT, MESSAGE, 500, 2000, 2)


def states(cache: Cache) -> list[object]:
    runs = [cache.runs_of(sequence) for sequence in range(12)]
    return [cache.bodies, cache.positions, cache.size_bytes, cache.first, cache.evicted, runs]


def both() -> tuple[Cache, Cache]:
    """Make a cache that holds trains, and one that has the same frames one by one."""
    caches = Cache(10_000, 100), Cache(10_000, 100)
    ends = [fill_mixed(cache, in_trains=number == 0) for number, cache in enumerate(caches)]
    assert ends[0] == ends[1]
    return caches


def test_train_is_kept_as_its_frames_would_be() -> None:
    in_trains, one_by_one = both()
    assert states(in_trains) == states(one_by_one)
    assert sorted(in_trains.bodies) == list(range(1, 10))
    assert len(in_trains) == 9 and 9 in in_trains and 10 not in in_trains
    assert in_trains.kind_of(4) == SEGMENT and in_trains.kind_of(7) == DATA


@pytest.mark.parametrize("before", range(1, 12))
def test_acknowledging_may_end_anywhere_in_a_train(before: int) -> None:
    in_trains, one_by_one = both()
    for cache in (in_trains, one_by_one):
        cache.acknowledge(before)
    assert states(in_trains) == states(one_by_one)
    in_trains.acknowledge(10)
    assert len(in_trains) == 0 and in_trains.size_bytes == 0
    assert fill(in_trains, 1, first=20) and list(in_trains.bodies) == [20]


@pytest.mark.parametrize("count", range(10))
def test_eviction_may_end_anywhere_in_a_train(count: int) -> None:
    in_trains, one_by_one = both()
    for cache in (in_trains, one_by_one):
        for sequence in range(1, count + 1):
            cache._evict(sequence)
    assert states(in_trains) == states(one_by_one)
    assert len(in_trains._trains) == (count < 6) + (count < 9), "nor is its message kept"
    for cache in (in_trains, one_by_one):
        cache.acknowledge(9)
    assert states(in_trains) == states(one_by_one)


@pytest.mark.parametrize("bytes_max", [600, 1500, 2700])
def test_trains_are_evicted_at_the_byte_bound(bytes_max: int) -> None:
    caches = Cache(bytes_max, 100), Cache(bytes_max, 100)
    for number, cache in enumerate(caches):
        fill_mixed(cache, in_trains=number == 0)
        assert cache.size_bytes <= bytes_max and cache.evicted
    assert states(caches[0]) == states(caches[1])


@pytest.mark.parametrize("now", range(100, 106))
def test_frames_of_a_train_expire_together(now: int) -> None:
    in_trains, one_by_one = both()
    for cache in (in_trains, one_by_one):
        cache.expire(now)
    assert states(in_trains) == states(one_by_one)

"""Payloads in shared memory: whose slot is whose, how long a view lives, what a peer cannot do."""

import errno
import fcntl
import gc
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hubbub.errors import LinkError
from hubbub.links import arena as module
from hubbub.links.arena import (
    ARENA_BYTES_MAX,
    CACHE_LINE_BYTES,
    FIRST_ARENA_BYTES,
    SEALS,
    Arena,
    Store,
    is_supported,
    slot_bytes_for,
)
from hubbub.links.mapping import ArenaRefused, Mapping

KIB = 1024
MIB = 1024 * KIB

Released = deque[tuple[int, int]]

pytestmark = pytest.mark.skipif(not is_supported(), reason="the system has no sealed memfd")


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store(64 * MIB)
    yield store
    store.close()


@pytest.fixture
def released() -> Released:
    return deque()


class Placed(NamedTuple):
    """A payload that is alone in its slot."""

    arena: int
    offset: int
    size_bytes: int


def put(store: Store, payload: bytes | memoryview, readers: Collection[str]) -> Placed | None:
    block = store.put([payload], readers)
    return None if block is None else Placed(block.arena, *block.places[0])


def placed(store: Store, payload: bytes | memoryview, *readers: str) -> Placed:
    reference = put(store, payload, readers)
    assert reference is not None
    return reference


def place_of(reference: Placed) -> tuple[int, int]:
    return reference.arena, reference.offset


def mapping_of(store: Store, number: int, released: Released) -> Mapping:
    arena = store.arenas[number]
    return Mapping(number, os.dup(arena.fileno), arena.size_bytes, released)


def leased(mapping: Mapping, reference: Placed) -> memoryview:
    assert mapping.holds(*reference[1:])
    [view] = mapping.lease_all(reference.offset, [reference[1:]])
    return view


def read(mapping: Mapping, offset: int, size_bytes: int) -> bytes:
    [payload] = mapping.read_all(offset, [(offset, size_bytes)])
    return payload


def open_descriptors() -> int:
    gc.collect()
    links = Path("/proc/self/fd").iterdir()
    return sum("memfd:hubbub" in os.readlink(one) for one in links if one.is_symlink())


def mapped_arenas() -> int:
    gc.collect()
    return Path("/proc/self/maps").read_text().count("/memfd:hubbub")


def python(code: str, *arguments: int, descriptor: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, (descriptor, *arguments))],
        pass_fds=[descriptor],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("size_bytes", [1, 4095, 4096, 4097, 16 * KIB, 65_537, 1_000_003])
@pytest.mark.parametrize("kind", [bytes, memoryview])
def test_a_payload_comes_out_as_it_went_in(
    store: Store, released: Released, kind: Callable[[bytes], bytes | memoryview], size_bytes: int
) -> None:
    before, payload, after = (os.urandom(size_bytes) for _ in range(3))
    references = [placed(store, kind(data), "reader") for data in (before, payload, after)]
    mapping = mapping_of(store, 0, released)

    assert leased(mapping, references[1]) == payload
    assert read(mapping, references[0].offset, size_bytes) == before
    assert read(mapping, references[2].offset, size_bytes) == after


def test_payloads_lie_together_in_one_slot_that_is_given_back_with_the_last_of_them(
    store: Store, released: Released
) -> None:
    placed(store, b"before", "reader")
    payloads = [os.urandom(size_bytes) for size_bytes in (5000, 1, 64, 4096, 70_001)]
    block = store.put(payloads, ["reader", "other"])
    assert block is not None and block.slot == 4096
    assert [size_bytes for _, size_bytes in block.places] == list(map(len, payloads))
    assert all(offset % CACHE_LINE_BYTES == 0 for offset, _ in block.places)
    mapping = mapping_of(store, 0, released)
    views = mapping.lease_all(block.slot, block.places)
    assert views == payloads and all(view.readonly for view in views)
    assert mapping.read_all(block.slot, block.places) == payloads
    assert list(released) == [(0, block.slot)], "the copies, at once"
    kept = views[2][10:20]
    del views
    assert len(released) == 1 and kept == payloads[2][10:20]
    del kept
    assert list(released) == [(0, block.slot)] * 2
    assert mapping.pinned_bytes == 0
    store.release("reader", [released[0]])
    assert store.statistics().slots_in_use == 2, "the other one has not read it yet"
    store.release("other", [released[0]])
    assert store.statistics().slots_in_use == 1


@given(st.integers(1, 1 << 31))
def test_a_slot_wastes_less_than_a_quarter_of_the_payload_or_than_a_page(size_bytes: int) -> None:
    slot_bytes = slot_bytes_for(size_bytes)
    assert 0 <= slot_bytes - size_bytes < max(size_bytes / 4, 4096)
    assert slot_bytes % 4096 == 0
    assert slot_bytes_for(slot_bytes) == slot_bytes


def test_the_slot_freed_last_is_taken_first(store: Store) -> None:
    first, second = (place_of(placed(store, bytes(20 * KIB), "reader")) for _ in range(2))
    store.release("reader", [first, second])
    assert place_of(placed(store, bytes(18 * KIB), "reader")) == second
    assert place_of(placed(store, bytes(19 * KIB), "reader")) == first


def test_a_slot_is_free_when_its_last_reader_has_released_it(store: Store) -> None:
    payload = bytes(64 * KIB)
    place = place_of(placed(store, payload, "one", "two"))
    store.release("one", [place])
    assert place_of(placed(store, payload, "one")) != place
    store.release("two", [place])
    assert place_of(placed(store, payload, "one")) == place


@pytest.mark.parametrize("place", [(0, 4096), (0, -1), (1, 0), (-1, 0), (1 << 64, 1 << 64)])
def test_release_of_what_was_never_given_is_refused_and_counted(
    store: Store, place: tuple[int, int]
) -> None:
    placed(store, bytes(64 * KIB), "reader")
    store.release("reader", [place])
    assert store.statistics().refused == 1
    assert store.statistics().slots_in_use == 1


def test_release_by_a_stranger_or_twice_is_refused_and_counted(store: Store) -> None:
    place = place_of(placed(store, bytes(64 * KIB), "one", "two"))
    store.release("stranger", [place])
    store.release("one", [place, place])
    assert store.statistics().refused == 2
    assert store.statistics().slots_in_use == 1
    assert store.claimed_bytes("one") == 0
    assert store.claimed_bytes("two") == 64 * KIB


def test_forgetting_a_reader_frees_what_it_alone_had(store: Store) -> None:
    own = place_of(placed(store, bytes(64 * KIB), "gone"))
    shared = place_of(placed(store, bytes(64 * KIB), "gone", "here"))
    store.forget("gone")
    store.forget("never known")
    assert store.claimed_bytes("gone") == 0
    assert store.claimed_bytes("here") == 64 * KIB
    assert place_of(placed(store, bytes(64 * KIB), "here")) == own
    store.release("here", [shared])
    assert place_of(placed(store, bytes(64 * KIB), "here")) == shared


def test_arenas_double_and_stay_within_the_bound() -> None:
    store = Store(56 * MIB)
    payload = bytes(16 * MIB)
    numbers = [placed(store, payload, "reader").arena for _ in range(3)]
    assert put(store, payload, ["reader"]) is None
    assert placed(store, payload[: 8 * MIB], "reader").arena == 2
    assert numbers == [0, 1, 1]
    sizes = [arena.size_bytes for arena in store.arenas.values()]
    assert sizes == [FIRST_ARENA_BYTES, 2 * FIRST_ARENA_BYTES, 8 * MIB]
    store.close()


def test_an_arena_is_as_large_as_a_message_needs(store: Store) -> None:
    placed(store, bytes(18 * MIB), "reader")
    assert store.arenas[0].size_bytes == 20 * MIB


def test_a_payload_takes_a_larger_slot_before_a_further_arena_but_not_a_much_larger_one() -> None:
    store = Store(128 * KIB)
    place, _ = (place_of(placed(store, bytes(64 * KIB), "reader")) for _ in range(2))
    store.release("reader", [place])
    assert put(store, bytes(28 * KIB), ["reader"]) is None
    assert place_of(placed(store, bytes(32 * KIB), "reader")) == place
    assert store.claimed_bytes("reader") == 128 * KIB
    store.close()


def test_an_arena_that_nobody_reads_is_cut_up_for_other_sizes() -> None:
    store = Store(128 * KIB)
    places = [place_of(placed(store, bytes(16 * KIB), "reader")) for _ in range(8)]
    store.release("reader", places[1:])
    assert put(store, bytes(100 * KIB), ["reader"]) is None
    store.release("reader", places[:1])
    assert place_of(placed(store, bytes(100 * KIB), "reader")) == (0, 0)
    assert place_of(placed(store, bytes(16 * KIB), "reader")) == (0, 112 * KIB)
    assert put(store, bytes(16 * KIB), ["reader"]) is None
    store.close()


def test_a_copy_that_fails_leaves_the_slot_free(store: Store) -> None:
    with pytest.raises(IndexError):
        put(store, memoryview(bytes(64 * KIB)).cast("I"), ["reader"])
    assert store.statistics().slots_in_use == 0
    assert placed(store, bytes(16 * KIB), "reader").offset == 0


@pytest.mark.parametrize(("payload", "readers"), [(b"x", []), (b"", ["reader"]), (b"x", "aa")])
def test_nothing_to_put_nobody_to_read_or_one_reader_twice_is_a_mistake(
    store: Store, payload: bytes, readers: list[str]
) -> None:
    with pytest.raises(AssertionError):
        put(store, payload, readers)


def test_a_retired_arena_is_never_written_again_and_its_views_stay(
    store: Store, released: Released
) -> None:
    mapped = mapped_arenas()
    payload = os.urandom(64 * KIB)
    references = [placed(store, payload, "slow", "fast") for _ in range(2)]
    view = leased(mapping_of(store, 0, released), references[0])
    store.release("slow", [place_of(references[1])])

    assert store.retire("slow") == [0]

    assert store.statistics().bytes_total == store.statistics().slots_in_use == 0
    assert store.claimed_bytes("slow") == store.claimed_bytes("fast") == 0
    assert {placed(store, bytes(64 * KIB), "fast").arena for _ in range(4)} == {1}
    assert view == payload
    assert mapped_arenas() == mapped + 2
    store.release("slow", [place_of(references[0])])
    store.release("fast", map(place_of, references))
    assert store.statistics().refused == 0
    assert store.statistics().retired == 1
    assert store.retire("slow") == []


def test_only_arenas_in_which_the_slow_reader_has_claims_are_given_up(store: Store) -> None:
    placed(store, bytes(16 * MIB), "fast")
    descriptors = open_descriptors()
    placed(store, bytes(64 * KIB), "slow")
    assert store.retire("slow") == [1]
    assert list(store.arenas) == [0]
    assert store.claimed_bytes("fast") == 16 * MIB
    assert open_descriptors() == descriptors


def test_a_closed_store_holds_nothing_and_has_no_room(released: Released) -> None:
    descriptors, mapped = open_descriptors(), mapped_arenas()
    store = Store(64 * MIB)
    place = place_of(placed(store, bytes(64 * KIB), "reader"))
    store.close()
    assert put(store, b"late", ["reader"]) is None
    store.release("reader", [place])
    assert (open_descriptors(), mapped_arenas()) == (descriptors, mapped)


class StoreMachine(RuleBasedStateMachine):
    """A store against a dictionary of what should be in it."""

    BYTES_MAX = 500_000
    READERS = ("a", "b", "c")
    readers = st.sampled_from(READERS)

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(module, "FIRST_ARENA_BYTES", 64 * KIB)
        self.store = Store(self.BYTES_MAX)
        self.live: dict[tuple[int, int], tuple[bytes, set[str]]] = {}
        self.puts = 0
        self.refused = 0
        self.retired = 0

    @rule(size_bytes=st.integers(1, 100 * KIB), readers=st.sets(readers, min_size=1))
    def put(self, size_bytes: int, readers: set[str]) -> None:
        self.puts += 1
        payload = bytes([self.puts % 256]) * size_bytes
        reference = put(self.store, payload, readers)
        if reference is None:
            assert self.live
            return
        assert reference.size_bytes == size_bytes
        assert place_of(reference) not in self.live
        self.live[place_of(reference)] = (payload, set(readers))

    @precondition(lambda self: self.live)
    @rule(data=st.data(), reader=readers)
    def release(self, data: st.DataObject, reader: str) -> None:
        place = data.draw(st.sampled_from(sorted(self.live)))
        self.store.release(reader, [place])
        self.refused += reader not in self.live[place][1]
        self.drop(reader, [place])

    @rule(reader=readers)
    def release_all(self, reader: str) -> None:
        places = [place for place, (_, readers) in self.live.items() if reader in readers]
        self.store.release(reader, places)
        self.drop(reader, places)

    @rule(reader=readers)
    def forget(self, reader: str) -> None:
        self.store.forget(reader)
        self.drop(reader, list(self.live))

    @rule(reader=readers)
    def retire(self, reader: str) -> None:
        given_up = {place[0] for place, (_, readers) in self.live.items() if reader in readers}
        late = [place for place in self.live if place[0] in given_up]
        assert self.store.retire(reader) == sorted(given_up)
        self.store.release(reader, late)
        self.live = {place: own for place, own in self.live.items() if place not in late}
        self.retired += len(given_up)

    def drop(self, reader: str, places: list[tuple[int, int]]) -> None:
        for place in places:
            self.live[place][1].discard(reader)
            if not self.live[place][1]:
                del self.live[place]

    @invariant()
    def no_payload_is_touched_while_somebody_has_a_claim(self) -> None:
        ends: dict[int, int] = {}
        for (number, offset), (payload, _) in sorted(self.live.items()):
            end = offset + len(payload)
            assert ends.get(number, 0) <= offset
            assert self.store.arenas[number].memory[offset:end] == payload
            ends[number] = end

    @invariant()
    def the_counters_add_up(self) -> None:
        statistics = self.store.statistics()
        assert statistics.arenas == len(self.store.arenas)
        assert statistics.slots_in_use == len(self.live)
        assert statistics.bytes_in_use <= statistics.bytes_total <= self.BYTES_MAX
        assert (statistics.refused, statistics.retired) == (self.refused, self.retired)
        assert self.is_size_of(statistics.bytes_in_use, set(self.READERS))
        for reader in self.READERS:
            assert self.is_size_of(self.store.claimed_bytes(reader), {reader})

    def is_size_of(self, size_bytes: int, readers: set[str]) -> bool:
        """Tell whether the slots of readers may have this size; a slot is up to twice too large."""
        own = [payload for payload, claims in self.live.values() if claims & readers]
        least_bytes = sum(slot_bytes_for(len(payload)) for payload in own)
        return least_bytes <= size_bytes <= 2 * least_bytes

    def teardown(self) -> None:
        self.store.close()
        self.patch.undo()


TestStore = StoreMachine.TestCase
TestStore.settings = settings(max_examples=60, stateful_step_count=40)


def test_without_memfd_an_arena_says_so_and_a_store_has_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    store = Store(64 * MIB)
    assert not is_supported()
    assert put(store, b"payload", ["reader"]) is None
    assert store.statistics().failed == 1
    with pytest.raises(LinkError, match="no sealed memfd"):
        Arena(4096)


def test_a_process_without_descriptors_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, flags: int) -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "memfd_create", refuse)
    assert Store(64 * MIB).put([b"payload"], ["reader"]) is None
    with pytest.raises(LinkError, match=os.strerror(errno.EMFILE)):
        Arena(4096)


def test_a_kernel_that_does_not_know_a_seal_is_not_supported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = open_descriptors(), mapped_arenas()
    monkeypatch.setattr(module, "SEALS", 0x8000)
    assert not is_supported()
    assert (open_descriptors(), mapped_arenas()) == before


ATTACKS = """
import ctypes, fcntl, mmap, os, sys
fileno, size_bytes = map(int, sys.argv[1:])
print(mmap.mmap(fileno, size_bytes, access=mmap.ACCESS_READ)[:7].decode())

def punch_hole():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fallocate(fileno, 3, ctypes.c_long(0), ctypes.c_long(4096)):
        raise OSError(ctypes.get_errno(), "fallocate")

attacks = {
    "shrink": lambda: os.ftruncate(fileno, size_bytes // 2),
    "grow": lambda: os.ftruncate(fileno, size_bytes * 2),
    "write": lambda: os.pwrite(fileno, b"scribble", 0),
    "reopen": lambda: os.pwrite(os.open(f"/proc/self/fd/{fileno}", os.O_RDWR), b"scribble", 0),
    "map": lambda: mmap.mmap(fileno, size_bytes),
    "seal": lambda: fcntl.fcntl(fileno, fcntl.F_ADD_SEALS, 0x8),
    "punch hole": punch_hole,
}
for name, attack in attacks.items():
    try:
        attack()
    except PermissionError:
        continue
    print(name, "succeeded")
"""


def test_another_process_can_read_an_arena_and_nothing_else(store: Store) -> None:
    reference = placed(store, b"payload", "reader")
    arena = store.arenas[reference.arena]
    process = python(ATTACKS, arena.size_bytes, descriptor=arena.fileno)
    assert process.communicate() == ("payload\n", "")
    assert arena.memory[:7] == b"payload"
    assert placed(store, b"the writer goes on", "reader")


READER = """
import sys
from collections import deque
from hubbub.links.mapping import Mapping
fileno, arena_bytes, offset, size_bytes = map(int, sys.argv[1:])
[view] = Mapping(0, fileno, arena_bytes, deque()).lease_all(offset, [(offset, size_bytes)])
print(bytes(view[:7]).decode(), flush=True)
sys.stdin.read()
"""


def test_a_killed_reader_leaves_nothing_behind_and_the_writer_goes_on(store: Store) -> None:
    reference = placed(store, b"payload" * 10_000, "reader")
    arena = store.arenas[reference.arena]
    with python(READER, arena.size_bytes, *reference[1:], descriptor=arena.fileno) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "payload\n"
        process.kill()
        assert process.wait() == -signal.SIGKILL
    store.forget("reader")
    assert [name for name in os.listdir("/dev/shm") if "hubbub" in name] == []
    assert placed(store, b"another" * 10_000, "reader") == reference


def memfd(size_bytes: int, seals: int) -> int:
    fileno = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fileno, size_bytes)
    fcntl.fcntl(fileno, fcntl.F_ADD_SEALS, seals)
    return fileno


def regular_file() -> int:
    return os.open(__file__, os.O_RDONLY | os.O_CLOEXEC)


def pipe() -> int:
    reading, writing = os.pipe()
    os.close(writing)
    return reading


def write_only() -> int:
    fileno = memfd(4096, SEALS)
    again = os.open(f"/proc/self/fd/{fileno}", os.O_WRONLY | os.O_CLOEXEC)
    os.close(fileno)
    return again


@pytest.mark.parametrize(
    ("offer", "size_bytes", "reason"),
    [
        (lambda: memfd(4096, 0), 4096, "has seals 0x0: must have all of 0x17"),
        *((lambda seal=seal: memfd(4096, SEALS & ~seal), 4096, "seals") for seal in (1, 2, 4, 16)),
        (lambda: memfd(4096, SEALS), 8192, "has 4096 bytes: must have 8192"),
        (lambda: memfd(8192, SEALS), 4096, "has 8192 bytes: must have 4096"),
        (lambda: memfd(0, SEALS), 0, "of 0 bytes"),
        (lambda: memfd(4096, SEALS), -4096, "of -4096 bytes"),
        (lambda: memfd(4096, SEALS), ARENA_BYTES_MAX + 1, f"from 1 to {ARENA_BYTES_MAX}"),
        (regular_file, Path(__file__).stat().st_size, "no memfd"),
        (pipe, 4096, "no memfd"),
        (write_only, 4096, "cannot be mapped"),
    ],
)
def test_what_could_harm_its_reader_is_refused_and_closed(
    released: Released, offer: Callable[[], int], size_bytes: int, reason: str
) -> None:
    descriptor = offer()
    with pytest.raises(ArenaRefused, match=reason):
        Mapping(0, descriptor, size_bytes, released)
    assert not Path(f"/proc/self/fd/{descriptor}").exists()


def test_a_mapping_keeps_no_descriptor(released: Released) -> None:
    descriptors = open_descriptors()
    mapping = Mapping(0, memfd(4096, SEALS), 4096, released)
    assert open_descriptors() == descriptors
    assert read(mapping, 0, 4096) == bytes(4096)


@pytest.mark.parametrize(
    ("offset", "size_bytes"),
    [
        *((0, 0), (0, -1), (-1, 2), (-4096, 4096), (0, 8193), (1, 8192), (8192, 1), (8193, -1)),
        *((1 << 63, 1), (1, 1 << 63), ((1 << 64) - 1, 2), (-(1 << 64), 1 << 64)),
    ],
)
def test_a_range_beyond_the_mapping_is_not_read(
    released: Released, offset: int, size_bytes: int
) -> None:
    mapping = Mapping(0, memfd(8192, SEALS), 8192, released)
    assert not mapping.holds(offset, size_bytes)


def test_all_of_a_mapping_can_be_read(released: Released) -> None:
    mapping = Mapping(0, memfd(8192, SEALS), 8192, released)
    assert leased(mapping, Placed(0, 0, 8192)) == bytes(8192)
    assert read(mapping, 0, 8192) == bytes(8192)
    assert leased(mapping, Placed(0, 8191, 1)) == bytes(1)


def test_a_view_is_flat_bytes_that_cannot_be_written(store: Store, released: Released) -> None:
    reference = placed(store, b"payload", "reader")
    view = leased(mapping_of(store, 0, released), reference)
    assert (view.format, view.itemsize, view.shape) == ("B", 1, (7,))
    assert view[0] == ord("p") and hash(view) == hash(b"payload")
    with pytest.raises(TypeError):
        view[0] = 0


def test_a_slot_is_released_once_when_the_last_slice_is_gone(
    store: Store, released: Released
) -> None:
    placed(store, bytes(4096), "reader")
    reference = placed(store, b"payload", "reader")
    mapping = mapping_of(store, 0, released)
    view = leased(mapping, reference)
    head = view[:3]
    tail = head[1:].cast("c")
    assert mapping.pinned_bytes == 7
    view.release()
    del view, head
    assert not released
    assert tail.tobytes() == b"ay"
    del tail
    assert list(released) == [(0, 4096)]
    assert mapping.pinned_bytes == 0


def test_a_numpy_array_keeps_the_slot(store: Store, released: Released) -> None:
    numpy = pytest.importorskip("numpy")
    payload = numpy.arange(1000, dtype="f8")
    reference = placed(store, payload.tobytes(), "reader")
    view = leased(mapping_of(store, 0, released), reference)
    array = numpy.frombuffer(view, dtype="f8")
    corner = array.reshape(10, 100)[5:, ::2]
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    del view, array
    assert not released
    assert corner.sum() == payload.reshape(10, 100)[5:, ::2].sum()
    del corner
    assert list(released) == [(0, 0)]


def test_a_view_in_a_cycle_is_released_by_the_collector(store: Store, released: Released) -> None:
    reference = placed(store, b"payload", "reader")
    cycle: list[object] = [leased(mapping_of(store, 0, released), reference)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert list(released) == [(0, 0)]


def test_a_lease_that_is_interrupted_before_it_is_filled_in_ends_silently(
    released: Released,
) -> None:
    mapping = Mapping(0, memfd(4096, SEALS), 4096, released)
    lease = leased(mapping, Placed(0, 0, 4096)).obj
    type(lease).from_address(0)  # type: ignore[attr-defined]
    assert not released


def test_each_lease_of_a_slot_is_released(store: Store, released: Released) -> None:
    reference = placed(store, b"payload", "reader")
    mapping = mapping_of(store, 0, released)
    views = [leased(mapping, reference) for _ in range(3)]
    assert mapping.pinned_bytes == 21
    assert read(mapping, 0, 7) == b"payload"
    assert list(released) == [(0, 0)]
    views.clear()
    assert list(released) == [(0, 0)] * 4


def test_a_closed_mapping_lasts_as_long_as_its_views(released: Released) -> None:
    arena = Arena(4096)
    arena.memory[:7] = b"payload"
    mapped = mapped_arenas()
    mapping = Mapping(5, os.dup(arena.fileno), 4096, released)
    view = leased(mapping, Placed(5, 0, 7))
    mapping.close()
    arena.close()
    assert not mapping.holds(0, 7)
    assert view.tobytes() == b"payload"
    assert mapped_arenas() == mapped
    del view
    assert mapped_arenas() == mapped - 1
    assert list(released) == [(5, 0)]
    assert mapping.pinned_bytes == 0


LEAVE_WITH_VIEWS = """
import sys
from collections import deque
from hubbub.links.mapping import Mapping
fileno, size_bytes = map(int, sys.argv[1:])
mapping = Mapping(0, fileno, size_bytes, deque())
[view] = mapping.lease_all(0, [(0, 4096)])
sys.kept_slice = mapping.lease_all(4096, [(4096, 4096)])[0][1:]
cycle = mapping.lease_all(8192, [(8192, 4096)])
cycle.append(cycle)
mapping.close()
"""


def test_an_interpreter_that_exits_with_views_is_silent(store: Store) -> None:
    placed(store, bytes(12 * KIB), "reader")
    arena = store.arenas[0]
    process = python(LEAVE_WITH_VIEWS, arena.size_bytes, descriptor=arena.fileno)
    assert process.communicate() == ("", "")
    assert process.returncode == 0

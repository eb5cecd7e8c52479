"""Slots rest before they are written again (rotation.py), as far as a store has room for that."""

from collections.abc import Iterator

import pytest

from hubbub.links.arena import Store, is_supported
from hubbub.links.rotation import Rest

KIB = 1024
MIB = 1024 * KIB

pytestmark = pytest.mark.skipif(not is_supported(), reason="the system has no sealed memfd")


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store(64 * MIB)
    yield store
    store.close()


def put(store: Store, size_bytes: int) -> tuple[int, int]:
    """Copy something into a slot; return its arena and offset."""
    block = store.put([bytes(size_bytes)], ["reader"])
    assert block is not None
    return block.arena, block.slot


def test_a_slot_rests_while_fresh_ones_can_be_had(store: Store) -> None:
    places = []
    for _ in range(Rest.SHORT.value // MIB + 2):
        places.append(put(store, MIB))
        store.release("reader", [places[-1]])
    assert len(set(places)) == len(places) - 1 and places[-1] == places[0]


def test_of_resting_slots_the_one_that_has_rested_just_long_enough_is_taken(store: Store) -> None:
    places = [put(store, MIB) for _ in range(8)]
    store.release("reader", places)
    rested = -1 - Rest.SHORT.value // MIB
    assert put(store, MIB) == places[rested]
    assert put(store, MIB) == places[rested - 1]


def test_with_no_room_for_more_the_slot_that_has_rested_longest_is_taken(store: Store) -> None:
    first, second = (put(store, 20 * KIB) for _ in range(2))
    for arena in store.arenas.values():
        arena.carve(arena.size_bytes - arena._carved_bytes)
    store.release("reader", [first, second])
    assert put(store, 18 * KIB) == first
    assert put(store, 19 * KIB) == second


def test_where_copies_are_slow_an_arena_is_added_so_that_slots_rest_for_long(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store.rotation, "copied", lambda *_: None)  # It stays as it is.
    store.rotation.rest = Rest.LONG
    places = set()
    for _ in range(2 * Rest.LONG.value // MIB):
        place = put(store, MIB)
        places.add(place)
        store.release("reader", [place])
    assert len(places) == Rest.LONG.value // MIB + 1
    assert store.statistics().arenas == 2

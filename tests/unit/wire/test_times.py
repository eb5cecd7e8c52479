"""Publish times that are unpacked when somebody looks."""

from struct import pack

import pytest

from hubbub.wire.times import Times

VALUES = (0, 1_000, 2**63, 2**64 - 1)
TIMES = Times(pack("!4Q", *VALUES))


def test_times_are_a_sequence_of_what_was_packed() -> None:
    assert len(TIMES) == len(VALUES)
    assert tuple(TIMES) == VALUES
    assert [TIMES[at] for at in range(-4, 4)] == [VALUES[at] for at in range(-4, 4)]
    assert TIMES[1:3] == VALUES[1:3]
    assert TIMES[::-1] == tuple(reversed(TIMES))
    assert VALUES[2] in TIMES


@pytest.mark.parametrize("index", [4, -5])
def test_there_is_nothing_beyond_the_ends(index: int) -> None:
    with pytest.raises(IndexError):
        TIMES[index]


def test_times_are_equal_to_the_same_numbers_in_any_sequence() -> None:
    assert TIMES == VALUES
    assert list(VALUES) == TIMES
    assert VALUES[:3] != TIMES
    assert TIMES != 0
    assert hash(TIMES) == hash(Times(pack("!4Q", *VALUES)))
    assert repr(TIMES) == f"Times{VALUES}"

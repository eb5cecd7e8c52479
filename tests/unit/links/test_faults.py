"""Faults: what becomes of frames is a function of the seed, the direction and their number."""

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.errors import ConfigurationError
from hubbub.limits import MS
from hubbub.links.faults import (
    REORDER_FRAMES_MAX,
    REORDER_HOLD_NS,
    RUN_BYTES_MAX,
    RUN_FRAMES_MAX,
    FaultInjector,
    Faults,
    Frame,
    gather,
    split,
)

PEER = ("192.0.2.1", 7000)


def frames(count: int, start: int = 0) -> list[Frame]:
    return [(number.to_bytes(8, "big"), PEER) for number in range(start, start + count)]


def numbers(passed: list[Frame]) -> list[int]:
    return [int.from_bytes(data, "big") for data, _ in passed]


def injector(direction: str = "in", **options: Any) -> FaultInjector:
    made = Faults(seed=1, **options).injector(direction)
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"loss": -0.1}, "loss=-0.1 must be a number from 0 to 1"),
        ({"duplicate": 1.5}, "duplicate=1.5 must be a number from 0 to 1"),
        ({"reorder": "often"}, "reorder='often' must be a number"),
        ({"corrupt": True}, "corrupt=True must be a number"),
        ({"loss": float("nan")}, "loss=nan must be a number from 0 to 1"),
        ({"delay_ms": -1}, "delay_ms=-1 must be a number from 0 to 60000"),
        ({"seed": 1.5}, "seed=1.5 is not a whole number"),
        ({"seed": True}, "seed=True is not a whole number"),
        ({"direction": "up"}, "direction='up' is none of both, in, out"),
    ],
)
def test_impossible_values_are_refused_with_value_and_bound(
    options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Faults(**options)


def test_no_faults_need_no_injector() -> None:
    assert Faults(seed=3).injector("in") is None
    assert Faults(loss=0.5, direction="out").injector("in") is None
    assert Faults(loss=0.5, direction="out").injector("out") is not None


def test_same_seed_does_the_same_to_each_direction() -> None:
    def outcome(direction: str, seed: int) -> list[int]:
        made = Faults(loss=0.2, duplicate=0.1, reorder=0.2, seed=seed).injector(direction)
        assert made is not None
        return numbers(made.filter(0, frames(300)))

    assert outcome("in", 7) == outcome("in", 7)
    assert outcome("in", 7) != outcome("out", 7)
    assert outcome("in", 7) != outcome("in", 8)


def test_outcome_does_not_depend_on_how_frames_are_handed_in() -> None:
    at_once = injector(loss=0.2, duplicate=0.1, reorder=0.3, corrupt=0.1)
    one_by_one = injector(loss=0.2, duplicate=0.1, reorder=0.3, corrupt=0.1)

    singly = [passed for frame in frames(200) for passed in one_by_one.filter(0, [frame])]
    assert at_once.filter(0, frames(200)) == singly


def test_losses_are_as_frequent_as_asked_and_counted() -> None:
    made = injector(loss=0.1)

    passed = made.filter(0, frames(20_000))

    assert 1_800 < made.statistics().lost < 2_200
    assert made.statistics().seen == 20_000
    assert len(passed) == 20_000 - made.statistics().lost
    assert numbers(passed) == sorted(numbers(passed))


def test_a_duplicate_is_the_same_frame_once_more() -> None:
    made = injector(duplicate=0.5)

    counted = Counter(numbers(made.filter(0, frames(100))))

    assert set(counted.values()) == {1, 2}
    assert sum(counted.values()) == 100 + made.statistics().duplicated


def test_a_reordered_frame_is_overtaken_by_a_few_and_not_lost() -> None:
    made = injector(reorder=0.2)

    passed = numbers(made.filter(0, frames(1000)))
    passed += numbers(made.release(REORDER_HOLD_NS))

    assert sorted(passed) == list(range(1000))
    assert passed != sorted(passed)
    assert made.statistics().reordered > 100
    # A frame is overtaken by at most so many that pass and by those held in its place.
    lateness = [place - number for place, number in enumerate(passed)]
    assert 0 < max(lateness) <= 3 * REORDER_FRAMES_MAX


def test_the_last_frame_is_let_go_when_nothing_follows() -> None:
    made = injector(reorder=1)

    assert made.filter(100, frames(1)) == []
    assert made.deadline() == 100 + REORDER_HOLD_NS
    assert made.release(99 + REORDER_HOLD_NS) == []
    assert numbers(made.release(100 + REORDER_HOLD_NS)) == [0]
    assert made.deadline() is None


def test_delay_holds_every_frame_and_keeps_the_order() -> None:
    made = injector(delay_ms=20)

    assert made.filter(0, frames(2)) == []
    assert made.filter(5 * MS, frames(1, start=2)) == []
    assert made.deadline() == 20 * MS
    assert numbers(made.release(20 * MS)) == [0, 1]
    assert made.deadline() == 25 * MS
    assert numbers(made.filter(25 * MS, frames(1, start=3))) == [2]
    assert made.statistics().delayed == 4


def test_corruption_changes_one_bit_and_keeps_the_length() -> None:
    made = injector(corrupt=1)
    original = bytes(range(100))

    (damaged, source), *_ = made.filter(0, [(original, PEER)])

    assert source == PEER
    assert len(damaged) == 100
    changed = int.from_bytes(original, "big") ^ int.from_bytes(damaged, "big")
    assert changed.bit_count() == 1
    assert made.filter(0, [(b"", PEER)]) == [(b"", PEER)]


def test_each_frame_keeps_its_own_address() -> None:
    made = injector(reorder=0.3, duplicate=0.2)
    sources = [("192.0.2.1", port) for port in range(50)]

    passed = made.filter(0, [(bytes([source[1]]), source) for source in sources])

    assert all(source is not None and data == bytes([source[1]]) for data, source in passed)


@given(
    seed=st.integers(0, 1000),
    run_frames=st.lists(st.integers(1, 30), min_size=1, max_size=20),
    loss=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    other=st.sampled_from([0.0, 0.02, 0.5]),
)
def test_runs_meet_the_same_fate_as_their_frames(
    seed: int, run_frames: list[int], loss: float, other: float
) -> None:
    delay_ms = 0 if loss or other else 1
    faults = Faults(loss, other, other, delay_ms, other, seed)
    by_run, by_frame = faults.injector("in"), faults.injector("in")
    assert by_run is not None
    assert by_frame is not None
    end = 1 << 40

    from_runs: list[Frame] = []
    for place, count in enumerate(run_frames):
        made = [bytes([place, number]) * 5 for number in range(count)]
        made[-1] = made[-1][: 2 + place % 8]
        run = (b"".join(made), 10 if count > 1 else 0, PEER)
        for data, size, source in by_run.filter_run(0, run):
            from_runs += [(frame, source) for frame in split(data, size)]
    from_frames = [
        passed
        for place, count in enumerate(run_frames)
        for number in range(count)
        for passed in by_frame.filter(0, [_frame(place, number, count)])
    ]

    assert from_runs + by_run.release(end) == from_frames + by_frame.release(end)
    assert by_run.statistics() == by_frame.statistics()


def _frame(place: int, number: int, count: int) -> Frame:
    data = bytes([place, number]) * 5
    return (data[: 2 + place % 8] if number == count - 1 else data, PEER)


@given(
    sizes=st.lists(st.integers(1, 40), max_size=200),
    ports=st.lists(st.integers(1, 2), min_size=200, max_size=200),
    scale=st.sampled_from([1, 1000]),
)
def test_gathered_runs_split_into_the_same_frames(
    sizes: list[int], ports: list[int], scale: int
) -> None:
    made: list[Frame] = [
        (random.Random(place).randbytes(size * scale), ("h", port))
        for place, (size, port) in enumerate(zip(sizes, ports, strict=False))
    ]

    runs = gather(made)

    assert [(frame, whose) for data, size, whose in runs for frame in split(data, size)] == made
    assert all(size == 0 or len(data) <= RUN_BYTES_MAX for data, size, _ in runs)
    assert all(len(split(data, size)) <= RUN_FRAMES_MAX for data, size, _ in runs)


def test_frames_of_one_size_become_one_run() -> None:
    made: list[Frame] = [(bytes(size_bytes), PEER) for size_bytes in (*[100] * 10, 30)]

    assert [(len(data), size) for data, size, _ in gather(made)] == [(1030, 100)]


def test_a_run_that_is_spared_is_passed_on_as_it_is() -> None:
    run = (bytes(4400), 100, PEER)

    (passed,) = injector(loss=0.000_001).filter_run(0, run)

    assert passed[0] is run[0]

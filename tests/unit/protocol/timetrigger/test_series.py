"""Which samples of a producer open a slot, and from where on slots are counted."""

import pytest

from hubbub.limits import MS, SECOND
from hubbub.protocol.timetrigger.series import Series
from hubbub.wire.timed import OUT_OF_TURN, RESUMED, Response, make_origin

T = 1_700_000_000 * SECOND


def sample(tick_ms: int, *, flags: int = 0, era: int = 0, period_ms: int = 20) -> Response:
    tick_ns = T + tick_ms * MS
    return Response(
        make_origin(b"n" * 12, 2), 0, 1, 1, flags, era, tick_ms + 1, tick_ns, tick_ns + 5,
        period_ms * 1000, b"x",
    )  # fmt: skip


def place(*samples: Response) -> list[tuple[int, int]]:
    """Return the period of each in ms, and the tick that its slots are counted from."""
    series = Series()
    placed = [series.place(one) for one in samples]
    return [(one.period_ns // MS, (one.epoch_ns - T) // MS) for one in placed]


def test_only_the_first_sample_of_a_slot_opens_it() -> None:
    ticks = [sample(tick_ms) for tick_ms in (0, 20, 33, 40, 99, 100)]
    assert place(*ticks) == [(20, 0), (20, 0), (0, 0), (20, 0), (20, 0), (20, 0)]


@pytest.mark.parametrize(
    "after",
    [
        sample(1000, flags=RESUMED), sample(1000, era=1), sample(1000, period_ms=50),
        sample(4000),  # Behind a silence in which consumers give a producer up.
    ],
)  # fmt: skip
def test_slots_are_counted_anew_when_none_is_owed_between(after: Response) -> None:
    tick_ms = (after.tick_ns - T) // MS
    assert place(sample(0), after)[1][1] == tick_ms
    assert place(sample(0), sample(1000))[1][1] == 0


def test_slots_behind_a_sample_out_of_turn_are_not_missed() -> None:
    early = sample(15, flags=OUT_OF_TURN)
    assert place(early, sample(40)) == [(20, 15), (20, 40)]
    assert place(early, sample(20)) == [(20, 15), (20, 15)]


def test_sample_without_a_tick_is_recorded_without_a_slot() -> None:
    assert Series().place(sample(0)._replace(tick_ns=0)) == (0, 0)

"""Words below a picture: inside it, and none on another."""

import re

from hypothesis import given
from hypothesis import strategies as st

from hubbub.report.drawing import LETTER_PX, time_axis
from hubbub.report.scale import Scale

SECOND_US = 1_000_000


def labels(first_s: float, seconds: float, wide_px: float) -> list[tuple[float, str]]:
    """Return where an axis has which words."""
    low = int(first_s * SECOND_US)
    axis = str(time_axis(Scale(low, low + int(seconds * SECOND_US), 50, 50 + wide_px), 100, 0))
    found = re.findall(r'<text x="([\d.]+)"[^>]*>([^<]+)</text>', axis)
    return [(float(x), text) for x, text in found]


def test_words_at_the_ends_of_the_time_axis_do_not_lie_on_their_neighbours() -> None:
    shown = [text for _, text in labels(0, 50, 750)]
    assert shown == [f"00:00:{second:02d}" for second in range(5, 50, 5)]


def test_words_that_fit_are_all_there() -> None:
    assert [text for _, text in labels(0, 50, 600)] == [f"00:00:{one}0" for one in range(6)]


@given(st.floats(0, 10**9), st.floats(0.01, 10**7), st.floats(300, 1200))
def test_words_are_apart_and_inside(first_s: float, seconds: float, wide_px: float) -> None:
    placed = labels(first_s, seconds, wide_px)
    ends = [50.0]
    for x, text in placed:
        half = len(text) * LETTER_PX / 2
        assert x - half >= ends[-1] - 0.1
        ends.append(x + half)
    assert ends[-1] <= 50 + wide_px + 0.1

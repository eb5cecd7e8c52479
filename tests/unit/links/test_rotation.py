"""How long slots rest: learnt from the time that copies take."""

from hubbub.links.rotation import _DOUBTS, _TRIAL_BYTES, TIMED_BYTES_MIN, Rest, Rotation

MIB = 1 << 20
QUICK_NS = 36_000
SLOW_NS = 500_000
COLD_NS = 150_000


class Copies:
    """A clock, and copies that take as long as the memory at hand makes them."""

    def __init__(self) -> None:
        self.now = 0
        self.rotation = Rotation(lambda: self.now)

    def trial(self, short_ns: int, long_ns: int, *, pause_ns: int = 0) -> Rest:
        """Copy what one trial takes; return how long slots rest from then on."""
        for _ in range(_TRIAL_BYTES // MIB):
            took_ns = short_ns if self.rotation.rest is Rest.SHORT else long_ns
            self.now += took_ns + pause_ns
            self.rotation.copied(MIB, took_ns)
        return self.rotation.rest


def test_quick_copies_leave_the_rest_short() -> None:
    copies = Copies()
    assert {copies.trial(QUICK_NS, COLD_NS) for _ in range(20)} == {Rest.SHORT}


def test_slow_copies_make_the_rest_long_if_that_is_quicker() -> None:
    copies = Copies()
    rests = [copies.trial(SLOW_NS, COLD_NS) for _ in range(20)]
    assert rests == [Rest.LONG] * 20


def test_long_rest_that_is_no_quicker_is_given_up_and_not_tried_again_soon() -> None:
    copies = Copies()
    rests = [copies.trial(SLOW_NS, SLOW_NS) for _ in range(_DOUBTS)]
    assert rests == [Rest.LONG, Rest.LONG] + [Rest.SHORT] * (_DOUBTS - 2), "filled, then measured"


def test_first_use_of_the_memory_for_a_long_rest_is_not_held_against_it() -> None:
    copies = Copies()
    copies.trial(SLOW_NS, 0)
    assert copies.trial(SLOW_NS, 4 * SLOW_NS) is Rest.LONG
    assert copies.trial(SLOW_NS, COLD_NS) is Rest.LONG


def test_long_rest_ends_when_it_is_doubted_and_copies_are_quick_without_it() -> None:
    copies = Copies()
    rests = [copies.trial(SLOW_NS, COLD_NS) for _ in range(_DOUBTS + 1)]
    assert rests.count(Rest.SHORT) == 0
    rests = [copies.trial(QUICK_NS, COLD_NS) for _ in range(10)]
    assert rests[1:] == [Rest.SHORT] * 9


def test_who_copies_now_and_then_keeps_to_little_memory() -> None:
    copies = Copies()
    assert copies.trial(SLOW_NS, COLD_NS, pause_ns=40_000_000) is Rest.SHORT


def test_some_copies_that_are_interrupted_do_not_make_all_of_them_slow() -> None:
    copies = Copies()
    for _ in range(_TRIAL_BYTES // MIB // 4):
        copies.trial(QUICK_NS, COLD_NS)
        for took_ns in (QUICK_NS, 3_000_000, QUICK_NS, QUICK_NS):
            copies.now += took_ns
            copies.rotation.copied(MIB, took_ns)
    assert copies.rotation.rest is Rest.SHORT


def test_small_copies_are_not_timed() -> None:
    copies = Copies()
    for _ in range(_TRIAL_BYTES // TIMED_BYTES_MIN * 2):
        copies.rotation.copied(TIMED_BYTES_MIN - 1, SLOW_NS)
    assert copies.rotation.rest is Rest.SHORT

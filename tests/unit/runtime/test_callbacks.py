"""Running callbacks: in turns of bounded time, forgetting nothing that comes at their end."""

from hubbub.limits import DELIVERY_SLICE
from hubbub.message import Message
from hubbub.runtime.callbacks import CallbackRunner
from hubbub.runtime.inbox import Inbox
from tests.unit.runtime.fakes import FakeTime, run


def no_failure(message: Message, error: BaseException) -> None:
    raise AssertionError(message) from error


def test_a_turn_ends_after_its_time_and_says_that_more_is_left() -> None:
    time, inbox = FakeTime(), Inbox(100)
    got: list[int] = []

    def slow(message: Message) -> None:
        got.append(message.sequence)
        time.now_ns += DELIVERY_SLICE // 2

    runner = CallbackRunner(inbox, inbox.take, slow, no_failure, time.clock_ns)
    inbox.put(run(1, 5), None)
    assert runner.run_turn()
    assert got == [1, 2]
    assert runner.run_turn()
    assert not runner.run_turn()
    assert got == [1, 2, 3, 4, 5]


def test_a_run_that_comes_as_the_inline_turn_ends_is_not_left_behind() -> None:
    inbox = Inbox(100)
    got: list[int] = []
    late = [run(2, 1)]

    def take() -> Message | None:
        message = inbox.take()
        if message is None and late:
            inbox.put(late.pop(), None)  # By another thread, which finds the turn taken:
            runner.run_inline()
        return message

    runner = CallbackRunner(inbox, take, lambda m: got.append(m.sequence), no_failure)
    inbox.put(run(1, 1), None)
    runner.run_inline()
    assert got == [1, 2]

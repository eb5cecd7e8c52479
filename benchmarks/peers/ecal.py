"""Eclipse eCAL: shared memory within the host."""

import threading
from typing import Any

import ecal.nanobind_core as ecal  # type: ignore[import-untyped]

from benchmarks.endpoint import Endpoint, OnPayload

# Registration is no part of what is measured; its usual second would only make the run longer.
REGISTRATION_MS = 100
ACKNOWLEDGE_MS = 1000


class Ecal(Endpoint):
    """A publisher into shared memory, a callback on eCAL's own thread."""

    distribution = "eclipse-ecal"
    settings = (
        "shared memory; a publisher waits for the subscriber's acknowledgement, as without it all "
        "but the newest is overwritten; none in round trips, whose callbacks publish"
    )

    def __init__(self, *, sends: str, receives: str, size_bytes: int) -> None:
        """Start eCAL in this process and make the publisher and subscriber that this side needs."""
        configuration = ecal.Configuration()
        configuration.registration.registration_refresh = REGISTRATION_MS
        ecal.initialize(configuration, "benchmark")
        if sends:
            options = ecal.PublisherConfiguration()
            options.layer.shm.acknowledge_timeout_ms = 0 if receives else ACKNOWLEDGE_MS
            options.layer.udp.enable = options.layer.tcp.enable = False
            self._publisher = ecal.Publisher(sends, config=options)
        if receives:
            self._subscriber = ecal.Subscriber(receives)

    def send(self, payload: Any) -> None:
        """Copy into the shared memory file."""
        self._publisher.send(payload)

    def serve(self, on_payload: OnPayload) -> None:
        """Take the samples on eCAL's own thread."""
        done = threading.Event()

        def on_sample(_publisher: Any, _type: Any, sample: Any) -> None:
            if on_payload(sample.buffer):
                done.set()

        self._subscriber.set_receive_callback(on_sample)
        done.wait()

    def close(self) -> None:
        """Leave eCAL."""
        ecal.finalize()

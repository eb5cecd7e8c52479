"""LCM: UDP multicast on loopback, without retransmission."""

from typing import Any

import lcm

from benchmarks.endpoint import Endpoint, OnPayload, queued_messages

RECEIVE_BUFFER_BYTES = 4 << 20


class Lcm(Endpoint):
    """Publish and handle on one LCM object."""

    distribution = "lcm"
    settings = (
        "udpm with ttl=0 (between hosts 1) and a receive buffer of 4 MiB (capped by "
        "net.core.rmem_max), queue capacity raised to 64 MiB of messages; LCM repairs "
        "nothing, so its loss is its own"
    )

    ttl = 0

    def __init__(self, *, sends: str, receives: str, size_bytes: int) -> None:
        """Join the default group with a larger socket buffer, as LCM's manual advises."""
        options = f"ttl={self.ttl}&recv_buf_size={RECEIVE_BUFFER_BYTES}"
        self._lcm = lcm.LCM(f"udpm://239.255.76.67:7667?{options}")
        self._queued = queued_messages(size_bytes)
        self._sends = sends
        self._receives = receives

    def send(self, payload: Any) -> None:
        """Publish on the one channel."""
        self._lcm.publish(self._sends, payload)

    def serve(self, on_payload: OnPayload) -> None:
        """Handle messages in the calling thread."""
        done = False

        def on_message(_channel: str, payload: bytes) -> None:
            nonlocal done
            if on_payload(payload):
                done = True

        subscription = self._lcm.subscribe(self._receives, on_message)
        subscription.set_queue_capacity(self._queued)
        while not done:
            self._lcm.handle()

    def close(self) -> None:
        """Leave the group."""
        del self._lcm


class Veth(Lcm):
    """Between hosts."""

    ttl = 1

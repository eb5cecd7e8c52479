"""nng through pynng: Pub0 and Sub0 over a UNIX socket."""

from typing import Any

import pynng  # type: ignore[import-untyped]

from benchmarks.endpoint import Endpoint, OnPayload, queued_messages

# nng allows no more.
BUFFERED_MESSAGES_MAX = 8192


class Ipc(Endpoint):
    """A publisher with a full send buffer, a subscriber with a full receive buffer."""

    distribution = "pynng"
    settings = (
        "Pub0/Sub0 over an abstract UNIX socket, both buffers raised to 64 MiB of messages or "
        "nng's limit of 8192; Pub0 never waits, so what does not fit is its loss"
    )

    def __init__(self, *, sends: str, receives: str, size_bytes: int) -> None:
        """Listen for what this side sends, dial what it receives."""
        buffered = min(BUFFERED_MESSAGES_MAX, queued_messages(size_bytes))
        if sends:
            self._out = pynng.Pub0(send_buffer_size=buffered)
            self._out.listen(f"abstract://{sends}")
        if receives:
            self._in = pynng.Sub0(topics=b"", recv_buffer_size=buffered, recv_max_size=0)
            self._in.dial(f"abstract://{receives}", block=False)

    def send(self, payload: Any) -> None:
        """Publish without a topic prefix: each socket carries one topic."""
        self._out.send(payload)

    def serve(self, on_payload: OnPayload) -> None:
        """Receive in the calling thread."""
        receive = self._in.recv
        while not on_payload(receive()):
            pass

    def close(self) -> None:
        """Close the sockets."""
        for name in ("_out", "_in"):
            if name in self.__dict__:
                getattr(self, name).close()

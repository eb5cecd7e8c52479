"""ZeroMQ through pyzmq: PUB and SUB sockets over a UNIX or a TCP socket."""

import zlib
from abc import abstractmethod
from typing import Any

import zmq

from benchmarks.endpoint import Endpoint, OnPayload, queued_messages
from benchmarks.namespaces import ADDRESSES

# Below this pyzmq copies what it sends even when told not to.
ZERO_COPY_FROM_BYTES = zmq.COPY_THRESHOLD
FIRST_PORT = 20_000
PORTS = 10_000


class _PubSub(Endpoint):
    distribution = "pyzmq"
    settings = (
        "PUB/SUB, XPUB_NODROP so that PUB waits instead of dropping, high-water marks raised to "
        "64 MiB of messages, copy=False from 64 KiB"
    )

    def __init__(self, *, sends: str, receives: str, size_bytes: int) -> None:
        """Bind what this side sends, connect to what it receives."""
        self._context = zmq.Context()
        self._copy = size_bytes < ZERO_COPY_FROM_BYTES
        queued = queued_messages(size_bytes)
        if sends:
            self._out = self._context.socket(zmq.PUB)
            self._out.setsockopt(zmq.XPUB_NODROP, 1)
            self._out.setsockopt(zmq.LINGER, 0)
            self._out.set_hwm(queued)
            self._out.bind(self.address(sends))
        if receives:
            self._in = self._context.socket(zmq.SUB)
            self._in.setsockopt(zmq.SUBSCRIBE, b"")
            self._in.set_hwm(queued)
            self._in.connect(self.address(receives))

    @abstractmethod
    def address(self, topic: str) -> str:
        """Name the socket of a topic."""

    def send(self, payload: Any) -> None:
        """Publish without a topic frame: each socket carries one topic."""
        self._out.send(payload, copy=self._copy)

    def serve(self, on_payload: OnPayload) -> None:
        """Receive in the calling thread, as ZeroMQ's users do."""
        receive = self._in.recv
        if self._copy:
            while not on_payload(receive()):
                pass
        else:
            while not on_payload(receive(copy=False).buffer):
                pass

    def close(self) -> None:
        """Close the sockets; what is still queued is dropped."""
        self._context.destroy(linger=0)


class Ipc(_PubSub):
    """Over a UNIX socket."""

    def address(self, topic: str) -> str:
        """Use an abstract name, so that nothing stays behind."""
        return f"ipc://@{topic}"


class Tcp(_PubSub):
    """Over TCP on loopback."""

    host = "127.0.0.1"

    def address(self, topic: str) -> str:
        """Derive the port from the topic, the same at both sides."""
        return f"tcp://{self.host}:{FIRST_PORT + zlib.crc32(topic.encode()) % PORTS}"


class Veth(Tcp):
    """Over TCP to the publisher's host."""

    host = ADDRESSES[0]

"""Eclipse Zenoh: two peers on loopback that find each other by scouting."""

import json
import threading
from typing import Any, ClassVar

import zenoh

from benchmarks.endpoint import Endpoint, OnPayload
from benchmarks.namespaces import VETH


class Zenoh(Endpoint):
    """A publisher that blocks, a subscriber with a callback."""

    distribution = "eclipse-zenoh"
    configuration: ClassVar[dict[str, Any]] = {
        "mode": "peer",
        "listen/endpoints": ["tcp/127.0.0.1:0"],
        "scouting/multicast/interface": "lo",
    }
    settings = (
        "peer mode, TCP on loopback with the built-in shared-memory optimisation, "
        "CongestionControl.BLOCK, callback subscriber (as in z_sub_thr.py and z_pong.py)"
    )

    def __init__(self, *, sends: str, receives: str, size_bytes: int) -> None:
        """Open a session; peers of one host find each other through the loopback interface."""
        config = zenoh.Config()
        for key, value in self.configuration.items():
            config.insert_json5(key, json.dumps(value))
        self._session = zenoh.open(config)
        self._receives = receives
        if sends:
            self._publisher = self._session.declare_publisher(
                sends, congestion_control=zenoh.CongestionControl.BLOCK
            )

    def send(self, payload: Any) -> None:
        """Put bytes, or a received ZBytes as it is."""
        self._publisher.put(payload)

    def serve(self, on_payload: OnPayload) -> None:
        """Take the samples on Zenoh's own thread."""
        done = threading.Event()

        def on_sample(sample: zenoh.Sample) -> None:
            if on_payload(sample.payload):
                done.set()

        self._session.declare_subscriber(self._receives, on_sample)
        done.wait()

    def close(self) -> None:
        """Close the session."""
        self._session.close()  # type: ignore[no-untyped-call]

    @staticmethod
    def view(payload: Any) -> bytes:
        """Copy out of Zenoh's own type, which is no buffer."""
        return bytes(payload)


class Veth(Zenoh):
    """Between hosts."""

    settings = "peer mode, TCP, CongestionControl.BLOCK, callback subscriber"
    configuration: ClassVar[dict[str, Any]] = {
        "mode": "peer",
        "listen/endpoints": ["tcp/0.0.0.0:0"],
        "scouting/multicast/interface": VETH,
    }

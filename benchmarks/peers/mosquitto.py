"""MQTT through paho, by way of a mosquitto on the same machine."""

import contextlib
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks import broker
from benchmarks.endpoint import Endpoint, OnPayload

CONFIGURATION = """listener {port} {host}
allow_anonymous true
max_queued_messages 0
max_inflight_messages 1000
"""
IN_FLIGHT_MESSAGES = 1000


class Mosquitto(Endpoint):
    """One client, whose thread calls back."""

    distribution = "paho-mqtt"
    settings = (
        "QoS 0 by a mosquitto of its own process, its queues unbounded; a callback on paho's "
        "thread; mosquitto drops what a slow subscriber has no room for"
    )
    quality = 0

    def __init__(self, *, sends: str, receives: str, size_bytes: int) -> None:
        self._sends, self._receives = sends, receives
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2)
        self._client.max_inflight_messages_set(IN_FLIGHT_MESSAGES)
        self._client.connect(broker.HOST, broker.port())
        self._client.loop_start()

    @classmethod
    @contextlib.contextmanager
    def beside(cls) -> Iterator[None]:
        program = broker.find("mosquitto", "install Debian's package of that name")
        number = broker.free_port()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "mosquitto.conf"
            path.write_text(CONFIGURATION.format(host=broker.HOST, port=number))
            with broker.running([program, "-c", str(path)], number):
                yield

    def send(self, payload: Any) -> None:
        self._client.publish(self._sends, payload, qos=self.quality)

    def serve(self, on_payload: OnPayload) -> None:
        done = threading.Event()

        def on_message(client: Any, context: Any, message: Any) -> None:
            if not done.is_set() and on_payload(message.payload):
                done.set()

        self._client.on_message = on_message
        self._client.subscribe(self._receives, qos=self.quality)
        done.wait()

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


class Acknowledged(Mosquitto):
    """As Mosquitto, every message acknowledged on each hop."""

    settings = (
        "as mosquitto, at QoS 1 with a thousand messages under way; a publisher waits while ten "
        "thousand are not acknowledged"
    )
    quality = 1
    _PENDING_MAX = 10_000

    def send(self, payload: Any) -> None:
        super().send(payload)
        while len(self._client._out_messages) > self._PENDING_MAX:
            time.sleep(0.001)

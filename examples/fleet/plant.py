"""A plant line with sensors on a bad network, a camera, and two who look at its pictures."""

import random
import time
from typing import Any

from fleet.cast import Stop, open_node

SENSORS = ("temperature", "pressure", "vibration")
READINGS_HZ, FRAMES_HZ = 50, 10
FRAME_BYTES = 640 * 480
LOOK_S = 0.5  # So long the slow one looks at each picture.


def sense(name: str, domain: str, stop: Stop, loss: float) -> dict[str, Any]:
    """Publish readings of all sensors, over a network that loses frames."""
    count = 0
    with open_node(name, domain, loss) as node:
        publishers = [node.publisher(f"/plant/{name}/{sensor}") for sensor in SENSORS]
        while not stop.wait(1 / READINGS_HZ):
            for publisher in publishers:
                publisher.publish(b"%.2f" % random.gauss(21.5, 0.3), flush=True)
                count += 1
        node.flush(5)
        [channel] = node.statistics().channels
        faults = channel.link.faults_out
        return {"readings": count, "frames_lost": faults.lost if faults else 0,
                "repairs": channel.repairs_sent}  # fmt: skip


def film(name: str, domain: str, stop: Stop) -> dict[str, Any]:
    """Publish large frames; on one host they lie in shared memory."""
    with open_node(name, domain) as node:
        publisher = node.publisher(f"/camera/{name}/image")
        frame, count = bytes(FRAME_BYTES), 0
        publisher.wait_for_subscribers(3, timeout=10)  # Both who look, and the recorder.
        while not stop.wait(1 / FRAMES_HZ):
            publisher.publish(frame)
            count += 1
        node.flush(5)
        return {"frames": count}


def look(name: str, domain: str, stop: Stop, is_slow: bool) -> dict[str, Any]:
    """Look at pictures, at once or slowly; the slow one's own queue drops what it cannot take."""
    with open_node(name, domain) as node:
        images = node.subscribe("/camera/...", queue=8)
        seen = 0
        while not stop.wait(0):
            if images.receive(timeout=0.2) is not None:
                seen += 1
                time.sleep(LOOK_S if is_slow else 0)
        while not is_slow and images.receive(timeout=0.5) is not None:
            seen += 1
        images.close()
        return {"seen": seen, "dropped": images.dropped}

"""Publish every log line of Hubbub on the bus itself, as a ROS user would."""

import logging
import sys

import hubbub

domain = sys.argv[1]


class BusHandler(logging.Handler):
    """Puts log lines on the bus."""

    def __init__(self, node: hubbub.Node) -> None:
        super().__init__()
        self._publisher = node.publisher("/log")

    def emit(self, record: logging.LogRecord) -> None:
        """Publish one line."""
        self._publisher.publish(record.getMessage().encode())


node = hubbub.open("logger", domain=domain, interface="127.0.0.1")
lines = node.subscribe("/log")
logging.getLogger("hubbub").addHandler(BusHandler(node))
hubbub.set_log("peers,connection,subscription,cache,segments")
with hubbub.open("peer", domain=domain, interface="127.0.0.1") as peer:
    peer.subscribe("/log")
    for line in lines:
        sys.stdout.write(line.payload.decode() + "\n")
        if b"peer joined" in line.payload:
            break
logging.getLogger("hubbub").handlers.clear()
node.close()

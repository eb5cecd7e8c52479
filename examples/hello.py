"""Publish and subscribe in ten lines: `python examples/hello.py`."""

import hubbub

with hubbub.open("hello") as node:
    readings = node.subscribe("/plant/*/temp")  # Any node, here or on another host.
    node.publish("/plant/line1/temp", b"21.5")
    message = readings.receive(timeout=5)
    assert message is not None
    print(f"{message.source.name} says {message.payload.decode()} on {message.subject}")

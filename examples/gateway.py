"""A gateway: two networks that hear nothing of each other become one bus.

`python examples/gateway.py`

Here both are domains of this host; two interfaces, or a site far away by TCP, are joined the same
way. Only what somebody beyond wants crosses, and it keeps its origin and its order. The command for
it is `hubbub gateway`.
"""

import os

import hubbub
from hubbub.gateway import Gateway, Side

# Of their own, so that two runs at a time do not meet.
OFFICE, PLANT = (f"{name}-{os.getpid()}" for name in ("office", "plant"))

sides = [Side("office", domain=OFFICE), Side("plant", domain=PLANT)]
with (
    Gateway.open(sides, name="gw-1") as gateway,
    hubbub.open("sensor", domain=PLANT) as sensor,
    hubbub.open("desk", domain=OFFICE) as desk,
):
    readings = desk.subscribe("/plant/*/temp")
    temperature = sensor.publisher("/plant/line1/temp")
    assert temperature.wait_for_subscribers(1, timeout=10)  # The gateway, which wants it for desk.

    temperature.publish(b"21.5")
    message = readings.receive(timeout=10)
    assert message is not None
    print(f"{message.source.name} says {message.payload.decode()} on {message.subject}")

    for side in gateway.statistics().ports:
        print(f"to {side.name}: {side.messages} passed on")

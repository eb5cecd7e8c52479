"""A producer samples only when consumers are due one: `python examples/time_triggered.py`.

The speed is wanted each 40 ms by one and each 100 ms by the other. The vehicle samples at these
times alone, and each consumer gets one sample a period, stamped with the time it was made for.
"""

import itertools

import hubbub

with hubbub.open("vehicle") as vehicle, hubbub.open("dashboard") as dashboard:
    speeds = itertools.count(50)
    producer = vehicle.produce("/vehicle/speed", lambda: b"%d" % next(speeds))

    brakes = dashboard.consume("/vehicle/speed", period_ms=40)
    display = dashboard.consume("/vehicle/speed", period_ms=100)

    for name, consumer in (("brakes", brakes), ("display", display)):
        consumer.receive(timeout=5)  # The first comes at once, the next ones in their slots.
        one, other = consumer.receive(timeout=5), consumer.receive(timeout=5)
        assert one is not None and one.tick_ns and other is not None and other.tick_ns
        apart_ms = (other.tick_ns - one.tick_ns) / 1e6
        print(f"{name}: {one.payload.decode()} km/h, and the next after {apart_ms:.0f} ms")

    brakes.stop()
    display.stop()
    print(f"{producer.statistics().sent} samples were sent; without consumers there are none")

"""Publish a temperature ten times a second: `python examples/quickstart_publisher.py [COUNT]`.

Run quickstart_subscriber.py beside it, in another terminal or on another machine of the LAN.
"""

import contextlib
import itertools
import random
import sys
import time

import hubbub

count = int(sys.argv[1]) if len(sys.argv) > 1 else None

with contextlib.suppress(KeyboardInterrupt), hubbub.open("thermometer") as node:
    publisher = node.publisher("/plant/line1/temp")
    for number in itertools.count(1):
        temperature = random.gauss(21.5, 0.3)
        receivers = publisher.publish(f"{temperature:.2f}".encode())
        print(f"{temperature:.2f} to {receivers} receivers")
        if number == count:
            break
        time.sleep(0.1)

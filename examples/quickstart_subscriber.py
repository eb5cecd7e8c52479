"""Print every temperature of the plant: `python examples/quickstart_subscriber.py [COUNT]`."""

import contextlib
import sys

import hubbub

count = int(sys.argv[1]) if len(sys.argv) > 1 else None

with contextlib.suppress(KeyboardInterrupt), hubbub.open() as node:
    for number, message in enumerate(node.subscribe("/plant/*/temp"), 1):
        print(f"{message.subject} {message.payload.decode()} from {message.source}")
        if number == count:
            break

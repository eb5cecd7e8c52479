"""One level, many levels, a context for each pattern: `python examples/wildcards_and_callbacks.py`.

Subscriptions that overlap each get their own delivery.
"""

import threading

import hubbub

done = threading.Semaphore(0)


def show(message: hubbub.Message) -> None:
    """Print a message with the context that its subscription was given."""
    print(f"{message.context:>12}: {message.subject} {message.payload.decode()}")
    done.release()


with hubbub.open("wildcards") as node:
    node.subscribe("/plant/line1/temp", show, context="exactly")
    node.subscribe("/plant/*/temp", show, context="one level")
    node.subscribe("/plant/...", show, context="many levels")

    node.publish("/plant/line1/temp", b"21.5")  # All three.
    node.publish("/plant/line2/temp", b"19.0")  # Two of them.
    node.publish("/plant/line2/pump/speed", b"1450")  # Only the last.

    for _ in range(3 + 2 + 1):
        done.acquire(timeout=5)

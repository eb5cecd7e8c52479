"""Receive under asyncio, beside other tasks: `python examples/asyncio_subscriber.py [COUNT]`."""

import asyncio
import sys

import hubbub


async def publish(node: hubbub.Node) -> None:
    """Publish for ever; waits as a coroutine when receivers have no room."""
    publisher = node.publisher("/plant/line1/count")
    number = 0
    while True:
        number += 1
        await publisher.publish_async(b"%d" % number)
        await asyncio.sleep(0.02)


async def main(count: int) -> None:
    """Print so many messages."""
    with hubbub.open("asyncio") as node:
        subscription = node.subscribe("/plant/*/count")
        task = asyncio.create_task(publish(node))
        try:
            async for message in subscription:
                print(f"{message.subject} {message.payload.decode()}")
                count -= 1
                if count == 0:
                    break
        finally:
            task.cancel()


asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))

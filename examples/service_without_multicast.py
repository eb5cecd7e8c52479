"""A service: publish and subscribe where multicast does not reach, without a broker.

`python examples/service_without_multicast.py`

A new node needs to know one other; that one tells of all. Whoever's key is closest to that of the
service's name keeps the list of subscribers, and the next takes over when it leaves or dies.
"""

import hubbub

OPTIONS = {"multicast": False, "listen": 0}

with hubbub.open("first", services=True, **OPTIONS) as first:
    somebody = first.services.address  # Such as 10.0.0.7:40123.
    with (
        hubbub.open("reader", peers=[somebody], **OPTIONS) as reader,
        hubbub.open("writer", peers=[somebody], **OPTIONS) as writer,
    ):
        news = reader.service("plant-news").subscribe()
        reader.service("plant-news").wait_until_subscribed(10)

        count = writer.service("plant-news").publish(b"line 1 is running", wait=10)
        print(f"published to {count} subscriber")

        message = news.receive(timeout=10)
        assert message is not None
        print(message.payload.decode())

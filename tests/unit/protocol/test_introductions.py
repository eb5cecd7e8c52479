"""Who has not introduced itself yet is heard, but nothing of it is handed out."""

from hubbub.limits import MS
from hubbub.wire.header import HELLO, RELIABLE
from tests.harness import Lan


def test_messages_never_come_from_a_nameless_source() -> None:
    lan = Lan(1)
    publisher = lan.nodes[0]
    topic = publisher.core.publish_on(lan.now, "/a")
    lan.run(100 * MS)
    until_ns = lan.now + 30 * MS
    lan.lose = lambda datagram, _: (
        datagram.sender is publisher and datagram.kind == HELLO and lan.now < until_ns
    )
    (subscriber,) = lan.open(1)
    lan.run_until(lambda: topic.receivers == 1, 10 * MS)  # So its grant comes before its HELLO.
    lan.publish(publisher, topic, b"one", b"two")
    lan.run(200 * MS)
    assert subscriber.payloads("/a") == [b"one", b"two"]
    received = subscriber.core.peers[publisher.key].incoming[RELIABLE]
    names = {one.source.name for one in received.topics.values()}
    assert names == {publisher.core.endpoint.identity.name} != {""}

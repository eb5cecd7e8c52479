"""Our place in a network of RODOS: who wants what there, and what is taken from there."""

from hubbub.limits import RODOS_LIST_INTERVAL, RODOS_TIMEOUT, SECOND
from hubbub.protocol.gateway.rodos import RodosPort
from hubbub.wire import rodos
from hubbub.wire.rodos import NetworkMessage, TopicList

OURS = 4711  # Its index is 7.


def make_port(**options: bool) -> RodosPort:
    return RodosPort(OURS, [1001, 1002], **options)


def listing(number: int, *topics: int, index: int | None = None) -> bytes:
    listed = TopicList(number, number % 32 if index is None else index, topics)
    data = rodos.encode_list(listed)
    return rodos.encode(NetworkMessage(-1, 0xFFFF_FFFF, 10, 1, number, 5, 0, 1, data))


def message(topic: int, payload: bytes, *, sent_ns: int = 5, sender: int = 3) -> bytes:
    return rodos.encode(NetworkMessage(-1, 1 << 7, 10, 0, sender, sent_ns, 9, topic, payload))


def read(datagram: bytes) -> NetworkMessage:
    decoded = rodos.decode(datagram)
    assert isinstance(decoded, NetworkMessage)
    return decoded


def test_receiver_and_bitmap_follow_the_lists() -> None:
    port = make_port()
    assert port.audience(1001) == (-2, 0)
    port.take(0, listing(3, 1001))
    assert port.audience(1001) == (3, 1 << 3)
    port.take(0, listing(36, 1001, 1002))  # Index 4.
    assert port.audience(1001) == (-1, 1 << 3 | 1 << 4)
    assert port.audience(1002) == (4, 1 << 4)
    port.take(0, listing(3))  # A bit that is no longer true is cleared.
    assert port.audience(1001) == (4, 1 << 4)


def test_what_nobody_wants_is_not_sent() -> None:
    port = make_port()
    assert port.make(1001, b"x", 1) == []
    port.take(0, listing(3, 1001))
    (datagram,) = port.make(1001, b"x", 1)
    sent = read(datagram)
    assert (sent.receiver, sent.bitmap, sent.hops, sent.sender) == (3, 8, 10, OURS)
    assert (sent.topic, sent.data) == (1001, b"x")
    assert port.drops == {"nobody": 1}


def test_flooding_needs_no_lists() -> None:
    (datagram,) = make_port(is_flooding=True).make(1001, b"x", 1)
    assert (read(datagram).receiver, read(datagram).bitmap) == (-1, 0xFFFF_FFFF)


def test_node_that_is_silent_has_left() -> None:
    port = make_port()
    port.take(0, listing(3, 1001))
    assert port.expire(RODOS_TIMEOUT) == []
    (gone,) = port.expire(RODOS_TIMEOUT + 1)
    assert gone.number == 3 and port.audience(1001) == (-2, 0)


def test_every_message_is_newer_than_the_last() -> None:
    """RODOS drops what is not, two of one tick and pieces of one message among them."""
    port = make_port(is_flooding=True)
    datagrams = port.make(1001, bytes(3000), 50) + port.make(1001, b"x", 50)
    assert [len(read(one).data) for one in datagrams] == [1300, 1300, 400, 1]
    assert [read(one).sent_ns for one in datagrams] == [50, 51, 52, 53]


def test_an_empty_message_is_one() -> None:
    (datagram,) = make_port(is_flooding=True).make(1001, b"", 1)
    assert read(datagram).data == b""


def test_list_names_what_the_bus_wants() -> None:
    port = make_port()
    sent = read(port.announce(SECOND, 99, [1002]))
    assert (sent.kind, sent.topic, sent.receiver) == (rodos.TOPIC_LIST, 1, -1)
    assert rodos.decode_list(sent.data, OURS) == TopicList(OURS, 7, (1002,))
    assert port.list_ns == SECOND + RODOS_LIST_INTERVAL


def test_index_that_another_has_is_left_to_it() -> None:
    port = make_port()
    port.announce(SECOND, 99, [])
    port.take(SECOND, listing(7, 1001))
    port.take(SECOND, listing(0, 1001))
    assert port.index not in port.nodes
    assert port.list_ns == 0


def test_node_that_moved_has_one_bit() -> None:
    port = make_port()
    port.take(0, listing(3, 1001, index=3))
    port.take(0, listing(3, 1001, index=9))
    assert port.audience(1001) == (9, 1 << 9)


def test_messages_are_taken_once_also_two_of_one_tick() -> None:
    port = make_port()
    assert port.take(0, message(1001, b"a")) == (1001, b"a")
    assert port.take(0, message(1001, b"b")) == (1001, b"b")
    assert port.take(0, message(1002, b"a")) == (1002, b"a")
    assert port.take(0, message(1001, b"a")) is None
    assert port.take(0, message(1001, b"a", sent_ns=4)) == (1001, b"a")
    assert port.drops == {"duplicate": 1}


def test_what_is_not_for_us_is_counted() -> None:
    port = make_port()
    assert port.take(0, message(77, b"a")) is None
    assert port.take(0, message(1001, b"a", sender=OURS)) is None
    assert port.take(0, b"") is None
    request = rodos.encode(NetworkMessage(-1, 1, 10, 4, 3, 5, 0, 1001, b""))
    assert port.take(0, request) is None
    strange = rodos.encode(NetworkMessage(-1, 1, 10, 1, 3, 5, 0, 1, b"x"))
    assert port.take(0, strange) is None
    assert port.drops == {"unmapped": 1, "own": 1, "short": 1, "kind": 1, "list": 1}
    assert not port.nodes

"""The socket of services: what is read at once, and what is left for the next turn."""

from collections.abc import Iterator

import pytest

from hubbub.links.datagram import DatagramLink

HOST = "127.0.0.1"


@pytest.fixture
def links() -> Iterator[tuple[DatagramLink, DatagramLink]]:
    """Who sends, and who receives; by loopback a datagram is there once it was sent."""
    pair = DatagramLink(HOST, 0), DatagramLink(HOST, 0)
    yield pair
    for link in pair:
        link.close()


def send(links: tuple[DatagramLink, DatagramLink], *payloads: bytes) -> None:
    for payload in payloads:
        links[0].send(links[1].place, payload)


def read_some(link: DatagramLink) -> list[bytes]:
    return [data for data, _ in link.receive_some()]


def test_where_datagrams_come_one_by_one_the_second_read_is_spared(
    links: tuple[DatagramLink, DatagramLink],
) -> None:
    send(links, b"1")
    assert read_some(links[1]) == [b"1"]  # It looked to the end.
    send(links, b"2", b"3")
    assert read_some(links[1]) == [b"2"]
    assert read_some(links[1]) == [b"3"]


def test_soon_all_that_waits_is_read_at_once(links: tuple[DatagramLink, DatagramLink]) -> None:
    send(links, b"1")
    read_some(links[1])
    send(links, *[b"x"] * 40)
    counts = [len(read_some(links[1])) for _ in range(5)]
    assert counts == [1, 1, 1, 1, 36]
    send(links, b"1", b"2")
    assert read_some(links[1]) == [b"1", b"2"]


def test_who_asks_for_all_gets_all(links: tuple[DatagramLink, DatagramLink]) -> None:
    send(links, b"1")
    read_some(links[1])
    send(links, b"2", b"3")
    assert [data for data, _ in links[1].receive()] == [b"2", b"3"]
    assert read_some(links[1]) == []


@pytest.mark.parametrize(
    "place", [("a\0b", 7), ("\ud800", 7), ("127.0.0.1", 1 << 16), ("127.0.0.1", -1)]
)
def test_what_is_no_address_is_counted_and_does_not_raise(
    links: tuple[DatagramLink, DatagramLink], place: tuple[str, int]
) -> None:
    links[0].send(place, b"x")
    assert (links[0].sent, links[0].failed) == (0, 1)
    send(links, b"y")
    assert links[0].sent == 1

"""What is a place: an address in figures and a port, and nothing that must be looked up."""

import pytest

from hubbub.wire.places import is_place
from hubbub.wire.services import (
    SUBSCRIBE_SERVICE,
    Copy,
    Entry,
    Extra,
    Message,
    Request,
    decode_notice,
    decode_request,
    encode_notice,
    encode_request,
)

KEY = bytes(20)
NODE = bytes(12)


@pytest.mark.parametrize(
    "host",
    [
        "10.1.16.3",
        "127.0.0.1",
        "::1",
        "fe80::1%eth0",
        "fe80::1%3",
        "::ffff:10.0.0.1",
        "2001:db8::7",
    ],
)
def test_address_in_figures_is_a_place(host: str) -> None:
    assert is_place(host, 7266)


@pytest.mark.parametrize(
    "host",
    [
        "", "a\0b", "localhost", "host.invalid", "10.0.0", "10.0.0.256", "010.0.0.1", "10.0.0.1\0",
        "10.0.0.1%eth0", "::1::", "fe80::1%", "fe80::1%a\0b", "fe80::1%a%b", "1:2:3:4:5:6:7:8:9",
        "\N{FULLWIDTH DIGIT ONE}.0.0.1", " 10.0.0.1", "[::1]",
    ],
)  # fmt: skip
def test_what_would_have_to_be_looked_up_or_is_nothing_is_no_place(host: str) -> None:
    assert not is_place(host, 7266)


@pytest.mark.parametrize("port", [0, -1, 1 << 16])
def test_no_port_is_no_place(port: int) -> None:
    assert not is_place("10.0.0.1", port)


@pytest.mark.parametrize("host", ["10.0.0.1", "a\0b"])
def test_request_and_copy_with_what_is_no_place_are_refused(host: str) -> None:
    entry = Entry(NODE, 1, True, 0, (host, 7))
    message = Message(SUBSCRIBE_SERVICE, KEY)
    is_taken = host == "10.0.0.1"
    for extra in (Extra(place=(host, 7)), Extra(entries=[entry])):
        body = encode_request(Request(0, 0, 0, NODE, 1, 1, 0, 0, 0, message, extra))
        assert (decode_request(body) is not None) is is_taken
    body = encode_notice(0, Copy(KEY, "a", 1, 1, 1, 1, False, [entry]))
    assert (decode_notice(body) is not None) is is_taken

"""The first version's messages, bit for bit, and the keys and distances that were published."""

import unicodedata

import pytest

from hubbub.wire.services import (
    CHANGE_SERVICE_MANAGER,
    INFO,
    KEY_BITS,
    PUBLISH,
    SUBSCRIBE_SERVICE,
    UNSUBSCRIBE_SERVICE,
    Extra,
    Message,
    Request,
    decode_message,
    decode_request,
    distance,
    encode_message,
    encode_request,
    join_ids,
    node_key,
    service_key,
    split_ids,
)
from tests.vectors.frames import _PUBLISH

# Ids of nodes, and how their keys begin and end; the services that were published beside them.
IDS = {
    "85a9d4c4ded287750fc0ed32": ("05eb637c", "45ad"),
    "e779346c669c17f434c8ce0e": ("e49aa779", "9e6b"),
    "101112010203040506070809": ("442001f9", "e546"),
    "66d8f2206a56dbe991233bc2": ("f6cb6d9d", "06d6"),
}
SERVICES = {
    "feb5c6ae8ab97adf53f8bc92e5516982b6200ea4": "66d8f2206a56dbe991233bc2",
    "2462c45a65d5913186c9b310a6909164f55ef677": "85a9d4c4ded287750fc0ed32",
}
KEY = bytes(range(20))
NODES = [bytes([letter]) * 12 for letter in b"abc"]


@pytest.mark.parametrize("node", IDS)
def test_key_of_a_node_is_the_published_one(node: str) -> None:
    key = node_key(bytes.fromhex(node)).hex()
    assert (key[:8], key[-4:]) == IDS[node]
    assert 4 * len(key) == KEY_BITS == 160


@pytest.mark.parametrize("service", SERVICES)
def test_closest_node_is_the_published_one(service: str) -> None:
    key = bytes.fromhex(service)
    found = min(IDS, key=lambda node: distance(node_key(bytes.fromhex(node)), key))
    assert found == SERVICES[service]


def test_distance_is_read_with_the_first_byte_highest() -> None:
    assert distance(b"\x01" + bytes(19), bytes(20)) == 1 << 152
    assert distance(bytes(19) + b"\x01", bytes(20)) == 1


def test_name_has_one_key_however_it_was_typed_which_the_original_had_not() -> None:
    composed, apart = "caf\N{LATIN SMALL LETTER E WITH ACUTE}", "cafe\N{COMBINING ACUTE ACCENT}"
    assert composed != apart and unicodedata.normalize("NFC", apart) == composed
    assert service_key(composed) == service_key(apart) != service_key("cafe")


def test_subscribe_is_21_bytes() -> None:
    assert encode_message(Message(SUBSCRIBE_SERVICE, KEY)) == b"\0" + KEY


def test_unsubscribe_is_21_bytes() -> None:
    assert encode_message(Message(UNSUBSCRIBE_SERVICE, KEY)) == b"\1" + KEY


def test_publish_of_14_bytes_is_35_bytes() -> None:
    data = encode_message(Message(PUBLISH, KEY, b"HelloHypeWorld"))
    assert len(data) == 35
    assert data == b"\2" + KEY + b"HelloHypeWorld"


def test_info_is_a_publish_with_another_type() -> None:
    assert encode_message(Message(INFO, KEY, b"x")) == b"\3" + KEY + b"x"


def test_change_of_managers_has_the_new_one_and_all_subscribers() -> None:
    message = Message(CHANGE_SERVICE_MANAGER, KEY, join_ids(NODES[0], NODES[1:]))
    data = encode_message(message)
    assert data == b"\4" + KEY + b"".join(NODES)
    assert split_ids(message.rest) == (NODES[0], NODES[1:])


def test_change_for_a_subscriber_is_33_bytes() -> None:
    data = encode_message(Message(CHANGE_SERVICE_MANAGER, KEY, join_ids(NODES[0], [])))
    assert len(data) == 33
    assert decode_message(data) == Message(CHANGE_SERVICE_MANAGER, KEY, NODES[0])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" + KEY[:-1],
        b"\0" + KEY + b"x",
        b"\1" + KEY + b"x",
        b"\2" + KEY,
        b"\3" + KEY,
        b"\4" + KEY,
        b"\4" + KEY + bytes(11),
        b"\4" + KEY + bytes(13),
        b"\5" + KEY,
        b"\xff" + KEY + b"x",
    ],
)
def test_bare_message_that_the_first_version_would_refuse_is_none(data: bytes) -> None:
    assert decode_message(data) is None


def test_empty_payload_travels_in_an_envelope_only() -> None:
    empty = _PUBLISH._replace(message=Message(PUBLISH, KEY))
    assert decode_message(encode_message(empty.message)) is None
    assert decode_request(encode_request(empty)) == empty


def test_message_in_an_envelope_is_the_bare_message() -> None:
    assert encode_request(_PUBLISH).endswith(encode_message(_PUBLISH.message))


@pytest.mark.parametrize("subject", ["no subject", "/a//b", "/a/*", "/...", "/" + "a/" * 100])
def test_request_on_what_is_no_subject_is_none(subject: str) -> None:
    for type in (PUBLISH, INFO):
        request = Request(
            1, 0, 0, NODES[0], 1, 1, 1, 0, 1, Message(type, KEY, b"x"), Extra(subject=subject)
        )
        sound = request._replace(extra=Extra(subject="/a/b"))
        assert decode_request(encode_request(request)) is None
        assert decode_request(encode_request(sound)) == sound

import base64
import json

import msgspec
import pytest

from hubbub.cli.formats import message_json, message_line
from hubbub.message import Message, Source


def make_message(payload: bytes, subject: str = "/a/b", name: str = "lidar") -> Message:
    source = Source(name, bytes(range(12)), (1 << 64) - 1)
    return Message(subject, payload, source, 7, 1_000, 2_000_123_456_789, "multicast", None)


def test_line_tells_when_what_from_whom_and_how_much() -> None:
    line = message_line(make_message(b"21.5"), 200)
    clock, rest = line.split(" ", 1)
    assert clock.endswith(":20.123456") and len(clock) == len("00:00:00.000000")
    assert rest == "/a/b lidar#000102 4 B  21.5\n"


def test_line_is_one_line_whatever_peers_put_into_names() -> None:
    line = message_line(make_message(b"a\nb\x1b[2J", "/x\x1b[2J\n", "evil\r\x9b2J"), 4096)
    assert line.endswith("\n") and line[:-1].isprintable()


@pytest.mark.parametrize("payload", [b"x" * 10_000_000, "世".encode() * 1_000_000, b"\xff" * 9999])
def test_long_payload_is_cut_to_the_width(payload: bytes) -> None:
    line = message_line(make_message(payload), 80)
    assert line.endswith("…\n") and len(line) <= 81


def test_cutting_a_large_text_does_not_make_it_binary() -> None:
    for extra in range(4):
        payload = b"x" * extra + "世".encode() * 1000
        assert "世" in message_line(make_message(payload), 60)


def test_json_has_text_as_text() -> None:
    fields = json.loads(message_json(make_message("21 °C".encode())))
    assert fields == {
        "subject": "/a/b",
        "source": "lidar",
        "source_id": "000102030405060708090a0b",
        "incarnation": "ffffffffffffffff",
        "sequence": 7,
        "published_ns": 1_000,
        "received_ns": 2_000_123_456_789,
        "link": "multicast",
        "replayed_ns": None,
        "size": 6,
        "schema": None,
        "encoding": "utf-8",
        "payload": "21 °C",
    }


def test_json_has_other_bytes_as_base64() -> None:
    fields = json.loads(message_json(make_message(b"\xff\x00")))
    assert fields["encoding"] == "base64"
    assert base64.b64decode(fields["payload"]) == b"\xff\x00"


def test_json_is_one_line_without_control_characters() -> None:
    line = message_json(make_message("\x1b[2J\n\x9b2J\u2028".encode(), "/x\x9b"))
    assert line.endswith("\n") and line[:-1].isascii() and line[:-1].isprintable()


def test_typed_payload_is_written_as_what_it_holds() -> None:
    payload = msgspec.msgpack.encode({"celsius": 21.5, "where": "n\x1b"})
    line = message_line(make_message(payload), 200, "Temperature")
    assert line.endswith('  {"celsius":21.5,"where":"n\\u001b"}\n')
    fields = json.loads(message_json(make_message(payload), "Temperature"))
    assert (fields["schema"], fields["encoding"]) == ("Temperature", "json")
    assert fields["payload"] == {"celsius": 21.5, "where": "n\x1b"}


def test_payload_that_is_not_what_its_type_says_is_bytes() -> None:
    for payload in (b"\xc1", b"\xff" * 100_000):
        assert "ff" in message_line(make_message(payload), 200, "Temperature") or "c1" in (
            message_line(make_message(payload), 200, "Temperature")
        )
    assert json.loads(message_json(make_message(b"\xc1"), "T"))["encoding"] == "base64"

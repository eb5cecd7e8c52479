import sys

import pytest

from hubbub.cli.terminal import cut, escape, plural, readable, size


def test_whatever_is_escaped_can_be_printed() -> None:
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    assert escape(everything).isprintable()


def test_printable_text_is_left_alone() -> None:
    assert escape("Grüße, 世界 \\ ok") == "Grüße, 世界 \\ ok"


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x9b31m", "\\x9b31m"),  # The one-character form of ESC [.
        ("a\u202eb", "a\\u202eb"),  # Text from here on would run to the left.
        ("\U000e0001", "\\U000e0001"),
    ],
)
def test_control_characters_become_visible(text: str, escaped: str) -> None:
    assert escape(text) == escaped


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (b"21.5", "21.5"),
        ("21 °C".encode(), "21 °C"),
        (b"two\nlines", "two\\nlines"),
        (b"\x1b]0;title\x1b\\", "\\x1b]0;title\\x1b\\"),
        (b"\x00\x01\x02\x03\x04", "00010203 04"),
        (b"\xff\xfe", "fffe"),
        (b"", ""),
    ],
)
def test_payload_is_text_if_it_can_be_read_and_hexadecimal_if_not(
    payload: bytes, shown: str
) -> None:
    assert readable(payload) == shown


@pytest.mark.parametrize(
    ("text", "columns", "shown"),
    [
        ("short", 5, "short"),
        ("longer", 5, "long…"),
        ("世界世界", 8, "世界世界"),
        ("世界世界", 6, "世界…"),
        ("世界世界", 5, "世界…"),
    ],
)
def test_line_is_cut_to_the_columns_it_takes(text: str, columns: int, shown: str) -> None:
    assert cut(text, columns) == shown


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999.6, "1.0 kB"),
        (999_960, "1.0 MB"),
        (2_500_000, "2.5 MB"),
        (3e13, "30000.0 GB"),
    ],
)
def test_size_has_a_suitable_unit(size_bytes: float, text: str) -> None:
    assert size(size_bytes) == text


def test_one_of_something_is_not_many() -> None:
    assert [plural(count, "message") for count in (0, 1, 1200)] == [
        "0 messages",
        "1 message",
        "1,200 messages",
    ]

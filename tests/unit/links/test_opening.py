"""What a link settles before it opens a socket."""

import socket
from dataclasses import replace

import pytest

from hubbub.errors import ConfigurationError
from hubbub.links.interfaces import Interface
from hubbub.links.opening import (
    LOOPBACK_FRAME_BYTES,
    check_options,
    frame_bytes,
    wanted_address,
    window_bytes,
)

ETHERNET = Interface("eth0", 2, ("192.0.2.7",), ("fe80::7",), 1500, True, False, True)
LOOPBACK = Interface("lo", 1, ("127.0.0.1",), ("::1",), 65536, True, True, False)


@pytest.mark.parametrize(
    ("group", "port", "ttl", "frame_bytes_max", "said"),
    [
        ("192.0.2.1", 7266, 1, 0, "'192.0.2.1' is no multicast address"),
        ("plant", 7266, 1, 0, "'plant' is no multicast address"),
        ("239.1.1.1", 0, 1, 0, "port 0 must be from 1 to 65535"),
        ("239.1.1.1", 70_000, 1, 0, "port 70000 must be from 1 to 65535"),
        ("239.1.1.1", 7266, 256, 0, "ttl 256 must be from 0"),
        ("239.1.1.1", 7266, 1, 100, "frame_bytes_max 100 must be from 1232 to 65507"),
        ("239.1.1.1", 7266, 1, 65_508, "frame_bytes_max 65508 must be from 1232 to 65507"),
    ],
)
def test_impossible_options_are_refused_with_value_and_bound(
    group: str, port: int, ttl: int, frame_bytes_max: int, said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        check_options(group, port, ttl, frame_bytes_max)


def test_group_is_written_the_usual_way() -> None:
    assert check_options("FF02:0::7266", 1, 0, 1232) == "ff02::7266"


def test_interface_named_by_address_gives_the_address() -> None:
    assert wanted_address("fe80:0::7%eth0") == "fe80::7"
    assert wanted_address("192.0.2.7") == "192.0.2.7"
    assert wanted_address("eth0") is None
    assert wanted_address(None) is None


def test_frame_fits_the_mtu_of_every_interface() -> None:
    jumbo = replace(ETHERNET, mtu=9000)

    assert frame_bytes([ETHERNET], socket.AF_INET, 0) == 1472
    assert frame_bytes([ETHERNET], socket.AF_INET6, 0) == 1452
    assert frame_bytes([jumbo, ETHERNET], socket.AF_INET, 0) == 1472
    assert frame_bytes([LOOPBACK], socket.AF_INET, 0) == LOOPBACK_FRAME_BYTES
    assert frame_bytes([LOOPBACK], socket.AF_INET, 0, is_growing=True) == 1472
    assert frame_bytes([jumbo], socket.AF_INET, 0, is_growing=True) > 1472
    assert frame_bytes([replace(ETHERNET, mtu=70_000)], socket.AF_INET, 0) == 65_507
    assert frame_bytes([ETHERNET], socket.AF_INET, 8000) == 8000


def test_loopback_with_a_small_mtu_has_small_frames() -> None:
    assert frame_bytes([replace(LOOPBACK, mtu=1500)], socket.AF_INET, 0) == 1472


@pytest.mark.parametrize(
    ("size_bytes", "truesize_bytes"),
    [
        (200, 1280),
        (1000, 2304),
        (1472, 2304),
        (1900, 4352),
        (8000, 16_640),
        (16_000, 16_640),
        (16_384, 17_216),
        (61_440, 62_272),
    ],
)
def test_window_counts_what_the_kernel_charges(size_bytes: int, truesize_bytes: int) -> None:
    """The figures are sk_rmem_alloc after one datagram on Linux 6.18."""
    buffer_bytes = 8 << 20

    assert window_bytes(buffer_bytes, size_bytes) == pytest.approx(
        buffer_bytes * size_bytes / truesize_bytes / 2, abs=1
    )

"""The filter is run here by a small interpreter of classic BPF, so the jumps are tested, too."""

import socket
import struct

import pytest

from hubbub.links.bpf import own_frames_program

ACCEPTED = 0xFFFFFFFF
NETWORK_HEADER = 0xFFF00000


def run(program: bytes, packet: bytes) -> int:
    """Run a program on an IP packet; like the kernel, offset 0 is the UDP header."""
    network_bytes = 40 if packet[0] >> 4 == 6 else 20
    accumulator, counter = 0, 0
    instructions = list(struct.iter_unpack("=HBBI", program))
    while True:
        operation, if_true, if_false, operand = instructions[counter]
        counter += 1
        if operation == 0x06:
            return int(operand)
        if operation == 0x15:
            counter += if_true if accumulator == operand else if_false
            continue
        offset = operand - NETWORK_HEADER if operand >= NETWORK_HEADER else operand + network_bytes
        form = {0x28: "!H", 0x20: "!I"}[operation]
        accumulator = struct.unpack_from(form, packet, offset)[0]


def datagram(source: str, port: int) -> bytes:
    udp = struct.pack("!HHHH", port, 7266, 8, 0)
    if ":" in source:
        return (
            bytes([0x60]) + bytes(7) + socket.inet_pton(socket.AF_INET6, source) + bytes(16) + udp
        )
    return bytes([0x45]) + bytes(11) + socket.inet_aton(source) + bytes(4) + udp


def test_program_for_ipv4_has_the_bytes_the_kernel_expects() -> None:
    program = own_frames_program([("192.0.2.7", 0x1234)])

    assert list(struct.iter_unpack("=HBBI", program)) == [
        (0x28, 0, 0, 0),  # load the source port
        (0x15, 0, 3, 0x1234),  # another one: accept
        (0x20, 0, 0, NETWORK_HEADER + 12),  # load the source address
        (0x15, 0, 1, 0xC0000207),  # another one: accept
        (0x06, 0, 0, 0),  # drop
        (0x06, 0, 0, ACCEPTED),
    ]


def test_program_for_ipv6_compares_all_four_words() -> None:
    program = own_frames_program([("fe80::1:2", 9)])

    loads = [row for row in struct.iter_unpack("=HBBI", program) if row[0] == 0x20]
    assert [row[3] - NETWORK_HEADER for row in loads] == [8, 12, 16, 20]
    assert len(program) == 8 * 12


@pytest.mark.parametrize("own", ["192.0.2.7", "fe80::aa:1"])
def test_only_address_and_port_together_are_dropped(own: str) -> None:
    program = own_frames_program([(own, 5000)])
    other = own[:-1] + "9"

    assert run(program, datagram(own, 5000)) == 0
    assert run(program, datagram(own, 5001)) == ACCEPTED
    assert run(program, datagram(other, 5000)) == ACCEPTED


def test_every_one_of_several_endpoints_is_dropped() -> None:
    program = own_frames_program([("10.0.0.1", 1), ("10.0.0.2", 2), ("10.0.0.3", 3)])

    assert [run(program, datagram(f"10.0.0.{n}", n)) for n in (1, 2, 3)] == [0, 0, 0]
    assert run(program, datagram("10.0.0.1", 2)) == ACCEPTED
    assert run(program, datagram("10.0.0.4", 3)) == ACCEPTED


def test_ipv6_addresses_that_differ_in_any_word_are_accepted() -> None:
    program = own_frames_program([("1:2:3:4:5:6:7:8", 7)])

    for other in ("9:2:3:4:5:6:7:8", "1:2:9:4:5:6:7:8", "1:2:3:4:5:9:7:8", "1:2:3:4:5:6:7:9"):
        assert run(program, datagram(other, 7)) == ACCEPTED
    assert run(program, datagram("1:2:3:4:5:6:7:8", 7)) == 0

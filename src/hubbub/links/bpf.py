"""A classic BPF program by which the kernel drops what this link itself has sent.

Multicast to other processes of this host needs IP_MULTICAST_LOOP, and with it every frame comes
back to its sender too. Dropping it in the kernel costs 10 % of the sending rate, reading and
discarding it 40 % (measured with 60 kB frames). A datagram is our own when source address *and*
port are: the port alone is also used by other hosts, the address alone by other processes of this
one. A coalesced run of datagrams has one source, so the filter is right for UDP_GRO too.
"""

import ctypes
import socket
import struct
from collections.abc import Sequence

# Classic BPF (linux/filter.h): load a half word or word from a fixed offset, jump, return.
_LOAD_HALF = 0x28
_LOAD_WORD = 0x20
_JUMP_EQUAL = 0x15
_RETURN = 0x06

_DROP = 0
_ACCEPT = 0xFFFFFFFF

# On a UDP socket offset 0 is the UDP header; offsets from SKF_NET_OFF on count from the IP header.
_UDP_SOURCE_PORT = 0
_NETWORK_HEADER = 0xFFF00000
_IPV4_SOURCE = _NETWORK_HEADER + 12
_IPV6_SOURCE = _NETWORK_HEADER + 8

_SO_ATTACH_FILTER = 26
_INSTRUCTION = struct.Struct("=HBBI")


def own_frames_program(endpoints: Sequence[tuple[str, int]]) -> bytes:
    """Assemble the program that drops datagrams sent from one of these (address, port)."""
    blocks = [_endpoint_block(address, port) for address, port in endpoints]
    return b"".join([*blocks, _instruction(_RETURN, _ACCEPT)])


def attach(receiver: socket.socket, program: bytes) -> None:
    """Let the kernel run the program on every datagram for this socket; it replaces another."""
    code = ctypes.create_string_buffer(program, len(program))
    count = len(program) // _INSTRUCTION.size
    receiver.setsockopt(
        socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", count, ctypes.addressof(code))
    )


def _endpoint_block(address: str, port: int) -> bytes:
    """Drop if port and address are equal, else fall through to what follows the block."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    packed = socket.inet_pton(family, address)
    words = struct.unpack(f"!{len(packed) // 4}I", packed)
    offset = _IPV6_SOURCE if family == socket.AF_INET6 else _IPV4_SOURCE
    tests = [(_LOAD_HALF, _UDP_SOURCE_PORT, port)]
    tests += [(_LOAD_WORD, offset + 4 * place, word) for place, word in enumerate(words)]
    block = []
    for place, (load, where, expected) in enumerate(tests):
        beyond_block = 2 * (len(tests) - place - 1) + 1
        block.append(_instruction(load, where))
        block.append(_instruction(_JUMP_EQUAL, expected, if_false=beyond_block))
    return b"".join([*block, _instruction(_RETURN, _DROP)])


def _instruction(operation: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return _INSTRUCTION.pack(operation, if_true, if_false, operand)

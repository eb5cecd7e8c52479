"""Checks of the network: interfaces, multicast, socket buffers, offloads, and the bus itself."""

import secrets
import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import hubbub
from hubbub.channel import DEFAULT_GROUP, DEFAULT_PORT
from hubbub.cli.diagnosis import Finding
from hubbub.cli.session import set_up_log
from hubbub.cli.terminal import size
from hubbub.configuration import find_configured
from hubbub.links.dialling import parse_address
from hubbub.links.interfaces import Interface, choose, interfaces
from hubbub.links.multicast import SOCKET_BUFFER_BYTES
from hubbub.links.opening import frame_bytes
from hubbub.links.socket_pair import SOL_UDP, UDP_GRO, UDP_SEGMENT, set_buffer

ANSWER_TIMEOUT_S: Final = 1.0
BUS_TIMEOUT_S: Final = 3.0
IPV6_MTU: Final = 1280  # What every link must carry, RFC 8200 section 5.
_SEGMENT_BYTES: Final = 600


def examine(wanted: str, log: str | None) -> Iterator[Finding]:
    """Look at everything here, on one interface."""
    yield check_interfaces(interfaces())
    configured = find_configured().get("peers")
    if configured is not None:
        yield check_peers(configured.value)
    for interface in choose(wanted):
        yield check_state(interface)
        yield check_mtu(interface)
        yield check_multicast(interface)
    for name, option in (("rmem", socket.SO_RCVBUF), ("wmem", socket.SO_SNDBUF)):
        yield check_buffer(name, _limit_of(name), _reachable_buffer(option))
    yield check_segmentation()
    yield check_coalescing()
    set_up_log(is_wanted=log is not None)
    yield check_bus(wanted, log)
    yield check_tcp(wanted)


def check_interfaces(known: list[Interface]) -> Finding:
    """List what there is, and which one a node would take."""
    listed = "; ".join(map(str, known)) or "none"
    if not known:
        return Finding(
            "interfaces", "bad", "none at all", "bring one up: sudo ip link set dev lo up"
        )
    if all(one.is_loopback or not one.is_up for one in known):
        return Finding(
            "interfaces", "warn", f"{listed}: no LAN, only this host will be heard",
            "connect a network, or bring its interface up: sudo ip link set dev NAME up",
        )  # fmt: skip
    wanted = find_configured().get("interface")
    taken = ", ".join(one.name for one in choose(None if wanted is None else wanted.value))
    told = "" if wanted is None else f", as {wanted.origin} says"
    return Finding("interfaces", "ok", f"{listed}; a node takes {taken}{told}")


def check_peers(peers: list[str]) -> Finding:
    """Look up the names of those whom a node would call."""
    for peer in peers:
        place = parse_address(peer, "peers")
        try:
            socket.getaddrinfo(place.host, None)
        except (OSError, UnicodeError):
            return Finding(
                "peers", "bad", f"{place.host} has no address",
                "mend the name in HUBBUB_PEERS or the file, or /etc/hosts",
            )  # fmt: skip
    return Finding("peers", "ok", f"{', '.join(peers)}: each has an address")


def check_state(interface: Interface) -> Finding:
    """Tell whether the interface is up and takes multicast."""
    name = interface.name
    if not interface.is_up:
        return Finding(f"{name} state", "bad", "it is down", f"sudo ip link set dev {name} up")
    if not interface.is_multicast and not interface.is_loopback:
        return Finding(
            f"{name} state", "bad", "multicast is switched off",
            f"sudo ip link set dev {name} multicast on",
        )  # fmt: skip
    return Finding(f"{name} state", "ok", "up")


def check_mtu(interface: Interface) -> Finding:
    """Tell what a datagram can carry."""
    frame = frame_bytes([interface], socket.AF_INET, 0)
    what = f"{interface.mtu} bytes, frames of {frame}"
    if interface.mtu < IPV6_MTU:
        return Finding(
            f"{interface.name} mtu", "warn", what, f"sudo ip link set dev {interface.name} mtu 1500"
        )
    return Finding(f"{interface.name} mtu", "ok", what)


def check_multicast(interface: Interface) -> Finding:
    """Send one datagram to a group on the interface, and wait until it comes back."""
    name = f"{interface.name} multicast"
    if not interface.ipv4:
        return Finding(
            name, "bad", "no IPv4 address, which the default group needs",
            f"sudo ip address add ADDRESS/24 dev {interface.name}",
        )  # fmt: skip
    try:
        took_s = _send_to_self(interface)
    except TimeoutError:
        return Finding(
            name, "bad", f"a datagram to {DEFAULT_GROUP} did not come back",
            "let the firewall pass it: sudo iptables -I INPUT -d 239.255.0.0/16 -p udp -j ACCEPT",
        )  # fmt: skip
    except OSError as error:
        return Finding(
            name, "bad", f"group {DEFAULT_GROUP} cannot be used: {error.strerror}",
            f"give multicast a route: sudo ip route add 239.0.0.0/8 dev {interface.name}",
        )  # fmt: skip
    return Finding(name, "ok", f"a datagram to the group came back in {took_s * 1e3:.2f} ms")


def _send_to_self(interface: Interface) -> float:
    """Return after how many seconds a datagram to the group came back; TimeoutError: it did not."""
    address = socket.inet_aton(interface.ipv4[0])
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as group,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        group.bind((DEFAULT_GROUP if sys.platform == "linux" else "", 0))
        membership = socket.inet_aton(DEFAULT_GROUP) + address
        group.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, address)
        sender.bind((interface.ipv4[0], 0))
        probe = secrets.token_bytes(16)
        start_s = time.perf_counter()
        sender.sendto(probe, (DEFAULT_GROUP, group.getsockname()[1]))
        end_s = start_s + ANSWER_TIMEOUT_S
        while (left_s := end_s - time.perf_counter()) > 0:
            group.settimeout(left_s)
            if group.recv(64) == probe:
                return time.perf_counter() - start_s
    raise TimeoutError


def check_buffer(name: str, limit_bytes: int | None, reachable_bytes: int) -> Finding:
    """Judge a limit of the kernel against what a link asks for."""
    title = "receive buffer" if name == "rmem" else "send buffer"
    wanted = SOCKET_BUFFER_BYTES
    limit = "" if limit_bytes is None else f"; net.core.{name}_max is {limit_bytes}"
    if reachable_bytes >= wanted:
        return Finding(title, "ok", f"a socket gets the {wanted} bytes that a link wants{limit}")
    return Finding(
        title, "warn",
        f"a socket gets {reachable_bytes} of the {wanted} bytes that a link wants{limit}",
        f"sudo sysctl -w net.core.{name}_max={wanted}\n"
        "to keep it over a restart:"
        f" echo net.core.{name}_max={wanted} | sudo tee -a /etc/sysctl.d/90-hubbub.conf",
    )  # fmt: skip


def _limit_of(name: str) -> int | None:
    try:
        return int(Path(f"/proc/sys/net/core/{name}_max").read_text())
    except (OSError, ValueError):
        return None


def _reachable_buffer(option: int) -> int:
    """Ask for a buffer as a link does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        set_buffer(probe, option, SOCKET_BUFFER_BYTES)
        got = probe.getsockopt(socket.SOL_SOCKET, option)
    return got // 2 if sys.platform == "linux" else got  # Linux counts its bookkeeping, too.


def check_segmentation() -> Finding:
    """Send two datagrams by one call, on loopback."""
    control = [(SOL_UDP, UDP_SEGMENT, struct.pack("=H", _SEGMENT_BYTES))]
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(ANSWER_TIMEOUT_S)
        try:
            sender.sendmsg([bytes(2 * _SEGMENT_BYTES)], control, 0, receiver.getsockname())
            sizes = [len(receiver.recv(65_536)) for _ in range(2)]
        except OSError as error:
            return _no_offload("segmentation", f"UDP_SEGMENT: {error}", "4.18")
    if sizes != [_SEGMENT_BYTES] * 2:
        return _no_offload("segmentation", f"UDP_SEGMENT made datagrams of {sizes}", "4.18")
    return Finding("segmentation", "ok", "one call sends many datagrams (UDP_SEGMENT)")


def check_coalescing() -> Finding:
    """Ask the kernel to hand out runs of datagrams."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.setsockopt(SOL_UDP, UDP_GRO, 1)
        except OSError as error:
            return _no_offload("coalescing", f"UDP_GRO: {error}", "5.0")
    return Finding("coalescing", "ok", "one call receives many datagrams (UDP_GRO)")


def _no_offload(name: str, what: str, kernel: str) -> Finding:
    remedy = f"use Linux {kernel} or later; without it small frames cost up to ten times as much"
    return Finding(name, "warn", what, remedy)


def check_bus(wanted: str, log: str | None) -> Finding:
    """Let two nodes exchange a message, in a domain that nobody else uses."""
    domain = f"doctor-{secrets.token_hex(8)}"
    start_s = time.perf_counter()
    try:
        with (
            hubbub.open("doctor-1", domain=domain, interface=wanted, log=log) as first,
            hubbub.open("doctor-2", domain=domain, interface=wanted) as second,
        ):
            message = _talk(first, second)
            statistics = first.statistics().channels[0]
    except hubbub.HubbubError as error:
        return Finding("bus", "bad", str(error), "mend what is bad above first")
    if message is None:
        return Finding(
            "bus", "bad", "two nodes of this process did not hear each other",
            "let the firewall pass UDP port 7266 and the answers to it",
        )  # fmt: skip
    took_ms = (time.perf_counter() - start_s) * 1e3
    window = size(statistics.window_bytes)
    return Finding(
        "bus", "ok", f"two nodes met and talked within {took_ms:.0f} ms; window {window}"
    )


def _talk(first: hubbub.Node, second: hubbub.Node) -> hubbub.Message | None:
    """Let one node say something to another."""
    subscription = second.subscribe("/doctor")
    publisher = first.publisher("/doctor")
    publisher.wait_for_subscribers(1, BUS_TIMEOUT_S)
    publisher.publish(b"are you there?")
    return subscription.receive(BUS_TIMEOUT_S)


def check_tcp(wanted: str) -> Finding:
    """Let one node call another, and look whether the port is free that others would call."""
    options: dict[str, Any] = {
        "domain": f"doctor-{secrets.token_hex(8)}", "interface": wanted, "links": ["tcp"],
        "channels": [hubbub.Channel(DEFAULT_GROUP, DEFAULT_PORT)],
    }  # fmt: skip
    try:
        with hubbub.open("doctor-1", **options) as first:
            tcp = first.statistics().channels[0].tcp
            assert tcp is not None
            with hubbub.open("doctor-2", **options, listen=0, peers=[tcp.address]) as second:
                message = _talk(first, second)
    except hubbub.HubbubError as error:
        return Finding("tcp", "bad", str(error), "mend what is bad above first")
    if message is None:
        return Finding(
            "tcp", "bad", f"nobody could connect to {tcp.address}",
            f"let the firewall pass TCP port {DEFAULT_PORT}",
        )  # fmt: skip
    if not tcp.address.endswith(f":{DEFAULT_PORT}"):
        return Finding(
            "tcp", "warn", f"port {DEFAULT_PORT} is taken; a node would listen at {tcp.address}",
            "give the node that others name in peers= a port of its own with listen=",
        )  # fmt: skip
    return Finding("tcp", "ok", f"a node that is named in peers= is reached at {tcp.address}")

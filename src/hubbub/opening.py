"""`hubbub.open`: from options, environment and defaults to a node."""

import os
import socket
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from random import SystemRandom
from typing import Any

from hubbub.channel import Channel
from hubbub.configuration import OPTIONS, configurable, suggest
from hubbub.errors import ConfigurationError
from hubbub.events import Event
from hubbub.given import is_number, is_whole
from hubbub.limits import (
    DELIVERY_THREADS_MAX,
    NODE_NAME_BYTES_MAX,
    RELEASE_BYTES_MAX,
    SPIN_US,
    SPIN_US_MAX,
    SWITCH_INTERVAL_MS,
)
from hubbub.links.choice import best_effort_links, choose_links, is_finding, take_ways
from hubbub.links.faults import Faults
from hubbub.links.listening import ListenAt
from hubbub.links.tcp_options import TcpOptions
from hubbub.node import Node
from hubbub.node_options import NodeOptions
from hubbub.protocol.endpoint import Identity
from hubbub.protocol.settings import make_settings
from hubbub.runtime.listeners import Listener
from hubbub.runtime.logs import set_log
from hubbub.service_options import VERSIONS, ServiceOptions

NODE_ID_BYTES = 12


@configurable
def open(
    name: str | None = None,
    *,
    domain: str | None = None,
    interface: str | None = None,
    channels: Iterable[Channel] | None = None,
    loopback: bool = True,
    links: Iterable[str] | None = None,
    peers: Iterable[str] | str | None = None,
    listen: int | str | None = None,
    tcp: TcpOptions | None = None,
    multicast: bool = True,
    network: bool = True,
    registration: str = "both",
    faults: Faults | None = None,
    node_id: bytes | str | None = None,
    key_file: str | None = None,
    on_event: Callable[[Event], object] | None = None,
    log: str | None = None,
    frame_bytes_max: int = 0,
    receive_buffer_bytes: int = 0,
    send_buffer_bytes: int = 0,
    offload: bool | None = None,
    delivery_threads_max: int = DELIVERY_THREADS_MAX,
    switch_interval_ms: float | None = SWITCH_INTERVAL_MS,
    spin_us: float = SPIN_US,
    services: bool | str | ServiceOptions = False,
    tell_events: bool = True,
    **options: Any,
) -> Node:
    """Open a node: a member of the bus, until it is closed.

        with hubbub.open("lidar-7", domain="plant") as node:
            node.publish("/plant/line1/temp", b"21.5")

    `interface` is a name, an address, or "all"; by default the LAN's, else the loopback. `domain`
    separates buses of one network. `loopback=False` keeps a node's own messages from its own
    subscriptions. `links` are the ways of messages: by default "inproc", "local", "multicast" and
    "datagram", and "tcp" if asked for, or ["services"] alone. `peers` names nodes to connect to by
    TCP, such as "10.0.0.7:7266" or "host"; `listen` is where others find this node; both by default
    the channel's port. `tcp` says who may connect, and by which certificates. `multicast=False`
    does without groups, and finds all whom the `peers` know, unless `links` or `tcp` say whom to
    connect to; `network=False` does without IP. Nodes of this host meet in a directory, by the
    network, or both (`registration`). `faults` mistreats frames of multicast and datagrams, the
    only links then unless `links` says otherwise. With `services=True` (or "v1", `ServiceOptions`)
    it shares services at once. `tell_events=False` keeps from recorders what it dropped.
    `hubbub.Settings` has more. The rest is from the environment (HUBBUB_DOMAIN, ...), else from the
    TOML file HUBBUB_CONFIG.
    """
    _begin(key_file, log, options)
    sizes = _sizes(frame_bytes_max, receive_buffer_bytes, send_buffer_bytes)
    _check_kinds(interface, faults, tcp, loopback, offload, tell_events)
    _check_numbers(sizes, delivery_threads_max, switch_interval_ms, spin_us)
    ways = take_ways(links, peers, listen, multicast, network, registration)
    node = Node(
        _identity(name, "default" if domain is None else domain, node_id),
        make_settings(options),
        NodeOptions(
            interface=interface, loopback=loopback, links=choose_links(ways, faults),
            best_effort_links=best_effort_links(ways),
            peers=ways.peers, listen=ways.listen or ListenAt(), tcp=tcp or TcpOptions(),
            registration=registration, faults=faults, link_options={**sizes, "gso": offload},
            delivery_threads_max=delivery_threads_max, switch_interval_ms=switch_interval_ms,
            spin_us=spin_us, services=_take_services(services),
            is_finding=is_finding(ways, tcp or TcpOptions()),
        ),
    )  # fmt: skip
    return _join(node, channels, on_event, tell_events)


def _take_services(services: bool | str | ServiceOptions) -> ServiceOptions:
    if isinstance(services, str) and services in VERSIONS:
        return ServiceOptions(version=services)
    wanted = 'True, False, "v1" or ServiceOptions(...)'
    _check_kind("services", services, bool | ServiceOptions, wanted)
    if isinstance(services, ServiceOptions):
        return services
    return ServiceOptions(is_open=bool(services))


def _sizes(frame: int, receive_buffer: int, send_buffer: int) -> dict[str, int]:
    return {
        "frame_bytes_max": frame, "receive_buffer_bytes": receive_buffer,
        "send_buffer_bytes": send_buffer,
    }  # fmt: skip


def _begin(key_file: str | None, log: str | None, options: dict[str, Any]) -> None:
    _refuse_key(key_file)
    _refuse_misspelt(options)
    if log is not None:
        set_log(log)


def _join(
    node: Node, channels: Iterable[Channel] | None, on_event: Listener | None, tell_events: bool
) -> Node:
    """Join channels, or leave nothing behind."""
    node._telling.is_on = tell_events
    if on_event is not None:
        node.on_event(on_event)
    try:
        for channel in _take_channels(channels):
            node.connect(channel)
    except BaseException:
        node.close(0)
        raise
    return node


def _take_channels(channels: Any) -> Iterable[Channel]:
    if channels is None:
        return [Channel()]
    is_one = isinstance(channels, str | Channel)
    if is_one or not isinstance(channels, Iterable):
        raise ConfigurationError(f"channels={channels!r}: give a list of hubbub.Channel(...)")
    return channels


def _refuse_key(key_file: str | None) -> None:
    if key_file is not None:
        raise ConfigurationError(
            f"key_file={key_file}: this version cannot seal frames, and will not pretend to;"
            " leave it out to send in the clear"
        )


def _refuse_misspelt(options: dict[str, Any]) -> None:
    for option in options:
        if option not in OPTIONS and (meant := suggest(option)):
            raise ConfigurationError(f"unknown option {option}; {meant}")


def _identity(name: str | None, domain: str, node_id: bytes | str | None) -> Identity:
    host = socket.gethostname()
    pid = os.getpid()
    name = name_after(what_runs()) if name is None else name
    for what, value in (("name", name), ("domain", domain)):
        _check_kind(what, value, str, "text")
        if not value.isprintable() or not 0 < len(value.encode()) <= NODE_NAME_BYTES_MAX:
            raise ConfigurationError(
                f"{what}={value!r} must be 1 to {NODE_NAME_BYTES_MAX} bytes of printable text"
            )
    random = SystemRandom()
    incarnation = random.getrandbits(64)
    return Identity(name, _node_id(node_id, random), incarnation, host, pid, domain, _release())


def name_after(what: str) -> str:
    """Name a node whose user did not: after what it does, its process and its host."""
    place = f"-{os.getpid()}@{socket.gethostname()}"
    room_bytes = max(NODE_NAME_BYTES_MAX - len(place.encode()), 0)
    printable = "".join(one for one in what if one.isprintable())
    return printable.encode()[:room_bytes].decode(errors="ignore") + place


def what_runs() -> str:
    """Return the name of the script or module that runs here; `python` where there is none."""
    script = Path(sys.argv[0]) if sys.argv else Path()
    if script.name in ("__main__.py", "-m"):  # `python -m package`, or a folder that runs.
        script = script.parent
    return "python" if script.stem in ("", "-c", "-") else script.stem


@cache
def _release() -> str:
    """Return the version of Hubbub; empty if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # 20 ms that an import would cost.

    try:
        return version("hubbub")[:RELEASE_BYTES_MAX]
    except PackageNotFoundError:
        return ""


def _node_id(node_id: bytes | str | None, random: SystemRandom) -> bytes:
    if node_id is None:
        return random.randbytes(NODE_ID_BYTES)
    try:
        value = bytes.fromhex(node_id) if isinstance(node_id, str) else bytes(memoryview(node_id))
    except (ValueError, TypeError):
        value = b""
    if len(value) != NODE_ID_BYTES:
        raise ConfigurationError(
            f"node_id={node_id!r} must be {NODE_ID_BYTES} bytes, or {2 * NODE_ID_BYTES} hex digits"
        )
    return value


def _check_kind(name: str, value: Any, kind: Any, wanted: str) -> None:
    if not isinstance(value, kind):
        raise ConfigurationError(f"{name}={value!r}: give {wanted}")


def _check_kinds(
    interface: Any, faults: Any, tcp: Any, loopback: Any, offload: Any, tell_events: Any
) -> None:
    _check_kind("loopback", loopback, bool, "True or False")
    _check_kind("offload", offload, bool | None, "True, False or None")
    _check_kind("tell_events", tell_events, bool, "True or False")
    _check_kind("interface", interface, str | None, "a name, an address or 'all'")
    _check_kind("faults", faults, Faults | None, "hubbub.Faults(...)")
    _check_kind("tcp", tcp, TcpOptions | None, "hubbub.TcpOptions(...)")


def _check_numbers(sizes: dict[str, int], threads_max: Any, interval_ms: Any, spin_us: Any) -> None:
    for option, value in sizes.items():
        _check_number(option, value, 0)
    _check_number("delivery_threads_max", threads_max, 1)
    _check_timing(interval_ms, spin_us)


def _check_number(name: str, value: Any, bound: int) -> None:
    if not is_whole(value):
        raise ConfigurationError(f"{name}={value!r} is not a whole number")
    if value < bound:
        raise ConfigurationError(f"{name}={value} must be at least {bound}")


def _check_timing(interval_ms: Any, spin_us: Any) -> None:
    if not is_number(spin_us) or not 0 <= spin_us <= SPIN_US_MAX:
        raise ConfigurationError(f"spin_us={spin_us!r} must be from 0 to {SPIN_US_MAX}")
    if interval_ms is None:
        return
    if not is_number(interval_ms):
        raise ConfigurationError(f"switch_interval_ms={interval_ms!r} is not a number")
    if not 0 < interval_ms < float("inf"):
        raise ConfigurationError(f"switch_interval_ms={interval_ms} must be more than 0, or None")

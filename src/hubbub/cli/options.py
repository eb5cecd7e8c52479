"""Options that mean the same on every command that has them."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any

import typer

Domain = Annotated[
    str | None,
    typer.Option(
        "--domain",
        envvar="HUBBUB_DOMAIN",
        metavar="NAME",
        help="Which bus of those that share the network.",
    ),
]
Interface = Annotated[
    str | None,
    typer.Option(
        "--interface",
        envvar="HUBBUB_INTERFACE",
        metavar="NAME|ADDRESS",
        help='A network interface, or "all". By default the LAN\'s.',
    ),
]
Peers = Annotated[
    str | None,
    typer.Option(
        "--peers",
        envvar="HUBBUB_PEERS",
        metavar="ADDRESS,...",
        help="Nodes to connect to by TCP, such as 10.0.0.7:7266 or a host's name.",
    ),
]
Links = Annotated[
    str | None,
    typer.Option(
        "--links",
        envvar="HUBBUB_LINKS",
        metavar="LINK,...",
        help='Only these, in this order: local, multicast, tcp, datagram; or "services" alone.',
    ),
]
LoopbackInterface = Annotated[
    str,
    typer.Option(
        "--interface",
        envvar="HUBBUB_INTERFACE",
        metavar="NAME|ADDRESS",
        help="A network interface. By default loopback: nothing leaves this machine.",
    ),
]
Log = Annotated[
    str | None,
    typer.Option(
        "--log",
        envvar="HUBBUB_LOG",
        metavar="CONCERNS",
        help='Log to stderr: "all", or some of connection, peers, repair, ... (comma-separated).',
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
WaitSubs = Annotated[
    int,
    typer.Option(
        "--wait-subs", "-w", min=0, metavar="N", help="First wait for so many subscribers."
    ),
]


@dataclass(frozen=True, slots=True)
class Bus:
    """Which bus a command joins, and how."""

    domain: Domain = None
    interface: Interface = None
    peers: Peers = None
    links: Links = None
    log: Log = None


def on_the_bus(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of the bus, behind its own; it takes all of them as `bus`."""
    own = [one for one in signature(command).parameters.values() if one.name != "bus"]
    shared = [
        Parameter(one.name, Parameter.KEYWORD_ONLY, default=None, annotation=one.type)
        for one in fields(Bus)
    ]

    @wraps(command)
    def run(**given: Any) -> None:
        bus = Bus(**{one.name: given.pop(one.name) for one in shared})
        command(bus=bus, **given)

    # What typer reads: the names, types and defaults of all that can be given.
    run.__annotations__ = {one.name: one.annotation for one in [*own, *shared]}
    run.__signature__ = Signature([*own, *shared])  # type: ignore[attr-defined]
    return run

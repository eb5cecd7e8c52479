"""Options that mean the same on every command that has them."""

from typing import Annotated

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

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

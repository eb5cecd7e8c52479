"""What commands have in common that look around, show what they see, and end."""

import time
from collections.abc import Callable
from typing import Annotated

import typer

import hubbub
from hubbub.cli.quantities import at_least
from hubbub.cli.screen import Screen, refuse_if_nobody_reads, write_until_the_end
from hubbub.cli.session import EXIT_INTERRUPTED, open_node
from hubbub.cli.terminal import plural

_REFRESH_S = 1.0
WAIT_S = 0.3  # Several times what a node that is there takes to answer.

Wait = Annotated[
    float,
    typer.Option(
        "--wait", parser=at_least(0), metavar="DURATION", help="So long nodes may answer."
    ),
]
Watch = Annotated[bool, typer.Option("--watch", help="Show it again each second, until Ctrl-C.")]
Pattern = Annotated[
    str, typer.Argument(metavar="PATTERN", help='"*" is one level, a last "..." the rest.')
]


def look(
    domain: str | None,
    interface: str | None,
    log: str | None,
    wait_s: float,
    show: Callable[[hubbub.Node, Screen], int],
    peers: str | None = None,
    begin: Callable[[hubbub.Node], None] = lambda node: None,
) -> None:
    """Open a node, wait until the others have answered, and exit with what `show` returns."""
    with open_node(domain, interface, log, peers) as node:
        begin(node)
        code = write_until_the_end(lambda: _show(node, wait_s, show))
    raise typer.Exit(code)


def _show(node: hubbub.Node, wait_s: float, show: Callable[[hubbub.Node, Screen], int]) -> int:
    try:
        time.sleep(wait_s)
        return show(node, Screen())
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def look_again(wait_s: float, is_watching: bool, show: Callable[[Screen], bool]) -> int:
    """Show what there is, once or each second, and return the exit code: 1 if that is nothing."""
    return write_until_the_end(lambda: _show_again(wait_s, is_watching, show))


def _show_again(wait_s: float, is_watching: bool, show: Callable[[Screen], bool]) -> int:
    screen = Screen()
    try:
        time.sleep(wait_s)
        while True:
            is_anything = show(screen)
            if not is_watching:
                return 0 if is_anything else 1
            time.sleep(_REFRESH_S)
            refuse_if_nobody_reads()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def describe_place(node: hubbub.Node) -> str:
    """Say where was looked, and how many others are there."""
    channels = ", ".join(channel.name for channel in node.channels)
    others = plural(len(node.peers()), "other node")
    return f"in domain {node.domain} on {channels} ({others})"

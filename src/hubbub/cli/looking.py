"""What commands have in common that look around, show what they see, and end."""

import time
from collections.abc import Callable, Sequence
from typing import Annotated, NoReturn

import typer

import hubbub
from hubbub.cli.quantities import at_least
from hubbub.cli.screen import Screen, refuse_if_nobody_reads, write_until_the_end
from hubbub.cli.session import EXIT_INTERRUPTED
from hubbub.cli.terminal import plural
from hubbub.protocol.delivery import SERVICES

_REFRESH_S = 1.0
SILENCE_S = 1.0  # Then a command that waits for messages says that none comes.
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


Show = Callable[[Screen], bool]
"""What shows something, and tells whether there was anything."""


def look(
    node: hubbub.Node,
    wait_s: float,
    begin: Callable[[hubbub.Node], Show],
    *,
    is_watching: bool = False,
) -> NoReturn:
    """Let others answer, show what there is, once or each second; exit with 1 if it is nothing.

    `begin` is called at once: what it asks for comes meanwhile.
    """
    with node:
        show = begin(node)
        code = write_until_the_end(lambda: _show(wait_s, show, is_watching))
    raise typer.Exit(code)


def _show(wait_s: float, show: Show, is_watching: bool) -> int:
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


def describe_silence(node: hubbub.Node, patterns: Sequence[str], what: str = "nothing yet") -> str:
    """Say what nothing came on, who is there, and what a pattern may have been meant for."""
    statistics = node.statistics()
    there = sum(peer.is_present for one in statistics.channels for peer in one.peers)
    if SERVICES in node.links and statistics.services is not None:
        there = len(statistics.services.members)
    nodes = f"{plural(there, 'other node')} on the bus" if there else "nobody else on the bus"
    odd = next((one for one in patterns if _is_odd(one)), None)
    hint = f"; {odd}: * alone stands for one level, a last ... for the rest" if odd else ""
    return f"{what} on {', '.join(patterns)} ({nodes}){hint}"


def _is_odd(pattern: str) -> bool:
    """Tell whether a level of a pattern is a wildcard elsewhere, and here an ordinary name."""
    levels = pattern.split("/")
    return any(one in ("#", "+", ">") or ("*" in one and one != "*") for one in levels)


def describe_place(node: hubbub.Node) -> str:
    """Say where was looked, and how many others are there."""
    channels = ", ".join(channel.name for channel in node.channels)
    others = plural(len(node.peers()), "other node")
    return f"in domain {node.domain} on {channels} ({others})"

"""The command `hubbub top` itself; what it shows is loaded only when it is run."""

import sys

import typer

import hubbub
from hubbub.cli.directory import EVERYTHING
from hubbub.cli.looking import Pattern
from hubbub.cli.options import Bus, on_the_bus
from hubbub.cli.session import open_node
from hubbub.errors import ConfigurationError, MissingExtra

_GUEST = hubbub.ServiceOptions(is_guest=True, is_open=False)


@on_the_bus
def top(
    pattern: Pattern = EVERYTHING,
    *,
    bus: Bus,
) -> None:
    """Show the whole bus live: topics, nodes, links, services, events.

    It subscribes to PATTERN to count what flows; rates are of the last second. Keys: 1 to 6 choose
    a table, / filters, s sorts, Enter opens a topic, q quits.
    """
    hubbub.check_pattern(pattern)
    try:
        from hubbub.cli.top.app import Top
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "textual":
            raise
        raise MissingExtra("top needs textual: pip install 'hubbub[top]'") from None
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigurationError(
            "top needs a terminal; for pipes there are `hubbub ls --rate 1`, `hubbub hz`, `bw` and"
            " `delay`, each with --json"
        )
    from hubbub.cli.top.gather import Gatherer

    with open_node(bus, services=_GUEST) as node:
        place = f"{node.domain} on {', '.join(channel.name for channel in node.channels)}"
        with Gatherer(node, pattern) as gatherer:
            shown = Top(gatherer.look, place)
            shown.run()
    raise typer.Exit(shown.return_code or 0)

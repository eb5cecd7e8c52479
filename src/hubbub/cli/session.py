"""What commands that are on the bus have in common: a node, and an orderly end."""

import gc
import logging
import signal
import sys
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from types import FrameType
from typing import Any, NoReturn

import hubbub
from hubbub.cli.options import Bus
from hubbub.cli.terminal import escape, note
from hubbub.configuration import Found, find_configured
from hubbub.opening import name_after

COMMAND = ContextVar("command", default="")
"""What runs, as `pub` or `service-pub`: others see its node by that name. Empty: nothing yet."""
QUEUE_MESSAGES = 100_000
"""By so many a command that prints or counts may fall behind before it drops any."""
GUEST = hubbub.ServiceOptions(is_guest=True)
"""How a command looks at services without a part in them."""
EXIT_FAILED = 2
EXIT_LOST = 3
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143
EXIT_BROKEN_PIPE = 141


def open_node(bus: Bus, *, services: bool | hubbub.ServiceOptions = False) -> hubbub.Node:
    """Open the node of a command."""
    end_on_sigterm()
    set_up_log(is_wanted=bus.log is not None)
    configured = find_configured()
    name = None if "name" in configured else name_after(COMMAND.get() or "hubbub")
    is_calling = (bus.peers or "peers" in configured) and "listen" not in configured
    wanted: dict[str, Any] = {"services": _as_configured(services, configured)} if services else {}
    node = hubbub.open(
        name, domain=bus.domain, interface=bus.interface, log=bus.log, peers=bus.peers,
        links=None if bus.links is None else [one.strip() for one in bus.links.split(",")],
        listen=0 if is_calling else None,  # The port of the channel is for nodes that stay.
        **wanted,
    )  # fmt: skip
    # What was made at start-up lives as long as the command: no collection need look at it again.
    gc.collect()
    gc.freeze()
    return node


def _as_configured(
    services: bool | hubbub.ServiceOptions, configured: dict[str, Found]
) -> bool | hubbub.ServiceOptions:
    """Let a command that looks on see services as the nodes of the bus do."""
    known = configured["services"].value if "services" in configured else None
    if isinstance(services, hubbub.ServiceOptions) and isinstance(known, hubbub.ServiceOptions):
        return replace(known, is_guest=services.is_guest, is_open=services.is_open)
    return services


def tell_of(*kinds: type[hubbub.Event]) -> Callable[[hubbub.Event], None]:
    """Make a listener that tells of events of these kinds, in a line each."""

    def tell(event: hubbub.Event) -> None:
        if isinstance(event, kinds):
            note(str(event))

    return tell


class _SafeFormatter(logging.Formatter):
    """Escape every line: names of peers and subjects are in them."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(map(escape, super().format(record).splitlines()))


def set_up_log(*, is_wanted: bool) -> None:
    """Send the library's log to stderr; unless it is wanted, only its warnings.

    Most of those are events, which commands tell in their own way.
    """
    handler = logging.StreamHandler()
    if is_wanted:
        handler.setFormatter(_SafeFormatter("%(asctime)s %(name)s %(message)s"))
    else:
        handler.setFormatter(_SafeFormatter("hubbub: %(message)s"))
        handler.setLevel(logging.WARNING)
        handler.addFilter(_is_no_event)
    logging.getLogger("hubbub").addHandler(handler)


def _is_no_event(record: logging.LogRecord) -> bool:
    arguments = record.args
    return not (isinstance(arguments, tuple) and isinstance(next(iter(arguments), 0), hubbub.Event))


def end_on_sigterm() -> None:
    """Let SIGTERM end a command as an exception does: what is open is closed on the way out."""
    signal.signal(signal.SIGTERM, _end)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(EXIT_TERMINATED)

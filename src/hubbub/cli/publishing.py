"""What commands have in common that publish: they meet who is there, and wait for them at last."""

import os
import sys
from collections.abc import Callable, Iterator
from typing import Final

from hubbub.cli.terminal import note
from hubbub.limits import OPENING, SECOND

# A new node keeps its messages until it knows who is there. Who waits for that delays none of them,
# and from then on `publish` tells how many receivers there are.
MEETING_S: Final = 1.2 * OPENING / SECOND
_FLUSH_TIMEOUT_S: Final = 10.0


def stdin_lines() -> Iterator[bytes]:
    """Yield each line of standard input, without its end."""
    for line in sys.stdin.buffer:
        yield line.removesuffix(b"\n")


def as_typed(argument: str) -> bytes:
    """Return an argument as it was typed, also if that is not UTF-8."""
    return os.fsencode(argument)


def is_confirmed(flush: Callable[[float], bool]) -> bool:
    """Wait until all receivers have everything; if they have not, that is said."""
    if flush(_FLUSH_TIMEOUT_S):
        return True
    note("not every receiver confirmed everything: it was lost, or is slow")
    return False

"""What commands have in common that print messages as they come."""

import shutil
import sys
import time
from collections.abc import Callable
from typing import Annotated

import typer

from hubbub.cli.formats import Write, message_json, message_line
from hubbub.cli.looking import SILENCE_S
from hubbub.cli.quantities import at_least
from hubbub.cli.screen import refuse_if_nobody_reads, write_until_the_end
from hubbub.cli.session import EXIT_INTERRUPTED
from hubbub.message import Message

# How often a command that waits looks whether anybody still reads what it prints.
_LOOK_S = 0.5
_PIPED_COLUMNS = 4096

Count = Annotated[int | None, typer.Option("--count", "-n", min=1, help="End after so many.")]
JsonLines = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
Raw = Annotated[bool, typer.Option("--raw", help="The bytes of the payloads alone.")]
Timeout = Annotated[
    float | None,
    typer.Option(parser=at_least(0), metavar="DURATION", help="End when nothing came for so long."),
]
Receive = Callable[[float], Message | None]


def _nothing() -> None:
    pass


def _no_schema(message: Message) -> str:
    return ""


def make_writer(
    *, as_json: bool, raw: bool, schema_of: Callable[[Message], str] = _no_schema
) -> Write:
    """Choose how a message is written; `schema_of` names the type that its publisher declares."""
    if as_json and raw:
        raise typer.BadParameter("give one of --json and --raw")
    out = sys.stdout
    if raw:
        return lambda message: out.buffer.write(message.payload)
    if as_json:
        return lambda message: out.write(message_json(message, schema_of(message)))

    def write(message: Message) -> None:
        columns = shutil.get_terminal_size().columns if out.isatty() else _PIPED_COLUMNS
        out.write(message_line(message, columns, schema_of(message)))

    return write


def follow(
    receive: Receive, write: Write, count: int | None, timeout_s: float | None,
    on_silence: Callable[[], None] = _nothing,
) -> int:  # fmt: skip
    """Write messages until the end, and return the exit code.

    `on_silence` is called once, when nothing has come for a while.
    """

    def work() -> int:
        try:
            seen = _write_all(receive, write, count, timeout_s, on_silence)
            sys.stdout.flush()
        except KeyboardInterrupt:
            sys.stdout.flush()
            return EXIT_INTERRUPTED
        return 1 if seen < (count or 1) else 0

    return write_until_the_end(work)


def _write_all(
    receive: Receive, write: Write, count: int | None, timeout_s: float | None,
    on_silence: Callable[[], None],
) -> int:  # fmt: skip
    seen = 0
    while count is None or seen < count:
        message = receive(0)
        if message is None:
            sys.stdout.flush()  # Only now: while there is more, whole buffers are written.
            message = _wait(receive, timeout_s, _nothing if seen else on_silence)
            if message is None:
                break
        write(message)
        seen += 1
    return seen


def _wait(
    receive: Receive, timeout_s: float | None, on_silence: Callable[[], None]
) -> Message | None:
    """Wait for a message, and look now and then whether somebody still reads our output."""
    begin_s = time.monotonic()
    end_s = float("inf") if timeout_s is None else begin_s + timeout_s
    while True:
        left_s = end_s - time.monotonic()
        message = receive(max(0.0, min(left_s, _LOOK_S)))
        if message is not None or left_s <= _LOOK_S:
            return message
        if time.monotonic() - begin_s >= SILENCE_S:
            on_silence()
            on_silence = _nothing
        refuse_if_nobody_reads()

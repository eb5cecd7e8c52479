"""`hubbub pub`: publish from the command line, and say who got it."""

import itertools
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import typer

import hubbub
from hubbub.cli.ctrl_c import CtrlC
from hubbub.cli.options import Bus, Json, WaitSubs, on_the_bus
from hubbub.cli.pace import Pace
from hubbub.cli.progress import Progress
from hubbub.cli.publishing import MEETING_S, as_typed, is_confirmed, stdin_lines
from hubbub.cli.quantities import at_least, parse_size
from hubbub.cli.session import EXIT_INTERRUPTED, open_node, tell_of
from hubbub.cli.terminal import note, plural, print_json, size
from hubbub.limits import MESSAGE_BYTES_MAX

_MANAGER_S = 1.0
_LONELY_S = 2.0  # After so long it is told that nobody listens.


@dataclass(slots=True)
class Tally:
    """What was published so far."""

    messages: int = 0
    size_bytes: int = 0
    unheard: int = 0
    receivers: int = 0
    seconds: float = 0.0
    is_confirmed: bool = False

    def add(self, size_bytes: int, receivers: int) -> None:
        """Count a message."""
        self.messages += 1
        self.size_bytes += size_bytes
        if not receivers:
            self.unheard += 1
        elif receivers > self.receivers:
            self.receivers = receivers

    def take_word_of(self, receivers: int) -> None:
        """Believe the manager of a service, who may tell only when it takes the messages."""
        if receivers and not self.receivers:
            self.receivers, self.unheard = receivers, 0

    @property
    def rate(self) -> float:
        """How many messages a second it were."""
        return self.messages / self.seconds if self.seconds else 0.0


def _message_bytes(text: object) -> int:
    """Read the size of a message."""
    size_bytes = parse_size(str(text))
    if size_bytes > MESSAGE_BYTES_MAX:
        raise typer.BadParameter(f"{text} is more than a message can have, {MESSAGE_BYTES_MAX} B")
    return size_bytes


@on_the_bus
def pub(
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="Such as /plant/line1/temp.")],
    body: Annotated[
        str | None, typer.Argument(metavar="BODY", help="Without it: all of standard input.")
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            "--count",
            "-n",
            min=1,
            max=sys.maxsize,
            help="How many messages (with --stdin: at most). [default: 1]",
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", "-r", min=0.001, help="Messages a second; without -n until Ctrl-C."),
    ] = None,
    lines: Annotated[
        bool, typer.Option("--stdin", help="Each line of standard input is a message.")
    ] = False,
    size_bytes: Annotated[
        int | None,
        typer.Option(
            "--size",
            parser=_message_bytes,
            metavar="SIZE",
            help="Made-up messages of this size, such as 500 or 64KiB.",
        ),
    ] = None,
    wait_subs: WaitSubs = 0,
    timeout: Annotated[
        float | None,
        typer.Option(
            parser=at_least(0),
            metavar="DURATION",
            help="Wait no longer for them; then exit with 1.",
        ),
    ] = None,
    as_json: Json = False,
    *,
    bus: Bus,
) -> None:
    """Publish messages on a subject.

    Exits with 1 when subscribers did not come or did not confirm in time, with 2 on an error.
    """
    _check_what(body, size_bytes, lines)
    with open_node(bus) as node:
        node.on_event(tell_of(hubbub.SlowConsumer, hubbub.LinkDown, hubbub.LinkUp))
        publisher = node.publisher(subject)
        payloads = stdin_lines() if lines else _repeat(_payload(body, size_bytes), count, rate)
        if not _meet(publisher, wait_subs, timeout):
            raise typer.Exit(1)
        tally = Tally()
        progress = Progress(None if lines else count, " receiving")
        payloads = itertools.islice(payloads, count)
        code = _publish_and_confirm(node, publisher, payloads, rate, tally, progress)
    _report(subject, tally, as_json)
    raise typer.Exit(code)


def _check_what(body: str | None, size_bytes: int | None, lines: bool) -> None:
    """Refuse more than one thing to publish, and none at all."""
    if (body is not None) + lines + (size_bytes is not None) > 1:
        raise typer.BadParameter("give one of BODY, --stdin and --size")
    if body is None and size_bytes is None and not lines and sys.stdin.isatty():
        raise typer.BadParameter("nothing to publish: give BODY, --size, --stdin, or pipe it in")


def _payload(body: str | None, size_bytes: int | None) -> bytes:
    if body is not None:
        return as_typed(body)
    if size_bytes is not None:
        return (bytes(range(256)) * (size_bytes // 256 + 1))[:size_bytes]
    return sys.stdin.buffer.read()


def _repeat(payload: bytes, count: int | None, rate: float | None) -> Iterator[bytes]:
    is_endless = count is None and rate is not None
    return itertools.repeat(payload) if is_endless else itertools.repeat(payload, count or 1)


def _meet(publisher: hubbub.Publisher, wait_subs: int, timeout_s: float | None) -> bool:
    """Wait for subscribers; False: they did not come in time."""
    if not wait_subs and publisher.counted is not None:
        # By services the manager has to be found, and says by itself how many there are.
        publisher.wait_for_subscribers(1, _MANAGER_S)
        return True
    if not wait_subs:
        time.sleep(MEETING_S)
        return True
    if publisher.wait_for_subscribers(wait_subs, timeout_s):
        return True
    note(
        f"{publisher.receivers} of {plural(wait_subs, 'subscriber')} of {publisher.subject}"
        f" after {timeout_s} s: nothing was sent"
    )
    return False


def _publish_and_confirm(
    node: hubbub.Node,
    publisher: hubbub.Publisher,
    payloads: Iterator[bytes],
    rate: float | None,
    tally: Tally,
    progress: Progress,
) -> int:
    """Publish, wait until all receivers have everything, and return the exit code."""
    code = 0
    start_s = time.monotonic()
    try:
        with progress:
            _publish_all(publisher, payloads, rate, tally, progress)
    except KeyboardInterrupt:  # Between two messages: what was published was counted.
        code = EXIT_INTERRUPTED
    tally.is_confirmed = is_confirmed(node.flush)
    tally.seconds = time.monotonic() - start_s
    if publisher.counted is not None:
        tally.take_word_of(publisher.receivers)
    return code or (0 if tally.is_confirmed else 1)


def _publish_all(
    publisher: hubbub.Publisher,
    payloads: Iterator[bytes],
    rate: float | None,
    tally: Tally,
    progress: Progress,
) -> None:
    pace = None if rate is None else Pace(rate)

    def wait() -> bytes | None:
        payload = next(payloads, None)
        if pace is not None and payload is not None:
            pace.wait()
        return payload

    lonely_s = time.monotonic() + _LONELY_S
    with CtrlC() as ctrl_c:
        while (payload := ctrl_c.wait(wait)) is not None:
            tally.add(len(payload), publisher.publish(payload))
            progress.show(tally.messages, publisher.receivers)
            if tally.unheard == tally.messages and time.monotonic() > lonely_s:
                note(f"nobody subscribes to {publisher.subject} yet")
                lonely_s = float("inf")


def _report(subject: str, tally: Tally, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "subject": subject,
                "messages": tally.messages,
                "bytes": tally.size_bytes,
                "receivers": tally.receivers,
                "unheard": tally.unheard,
                "seconds": round(tally.seconds, 6),
                "messages_per_second": round(tally.rate, 3),
                "is_confirmed": tally.is_confirmed,
            }
        )
        return
    what = f"{plural(tally.messages, 'message')}, {size(tally.size_bytes)}"
    if not tally.receivers:
        note(f"{what}: nobody subscribes to {subject}, nothing was sent")
        return
    unheard = f" ({tally.unheard:,} while nobody listened)" if tally.unheard else ""
    speed = f"in {tally.seconds:.3f} s, {tally.rate:,.0f} messages/s"
    note(f"{what}{unheard} to {plural(tally.receivers, 'receiver')} {speed}")

"""`hubbub play`: publish a recording again, with its timing."""

import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from hubbub.cli.ctrl_c import CtrlC
from hubbub.cli.options import Bus, Json, WaitSubs, on_the_bus
from hubbub.cli.progress import Progress
from hubbub.cli.publishing import MEETING_S, is_confirmed
from hubbub.cli.session import EXIT_INTERRUPTED, open_node
from hubbub.cli.store import Place, open_store
from hubbub.cli.terminal import escape, note, plural, print_json, readable, size
from hubbub.cli.times import From, To, parse_time_ns, show_span, show_time
from hubbub.errors import ConfigurationError
from hubbub.subjects import check_pattern

if TYPE_CHECKING:
    from hubbub.recorder.player import Plan, Played, Player, Recorded

_PREVIEW_BYTES = 60

Subjects = Annotated[
    list[str] | None,
    typer.Option("--subjects", "-s", metavar="PATTERN", help="Only these; may be repeated."),
]


@on_the_bus
def play(
    path: Place,
    rate: Annotated[
        str, typer.Option("--rate", "-r", metavar="X|max", help="How many times as fast.")
    ] = "1",
    start: From = None,
    end: To = None,
    subjects: Subjects = None,
    remap: Annotated[
        list[str] | None,
        typer.Option(
            "--remap",
            metavar="A=B",
            help="Publish A as B, or all below: /a/...=/b/...; may be repeated.",
        ),
    ] = None,
    loop: Annotated[bool, typer.Option("--loop", help="Again and again, until Ctrl-C.")] = False,
    step: Annotated[
        bool, typer.Option("--step", help="Wait for Enter before each message; q ends.")
    ] = False,
    wait_subs: WaitSubs = 0,
    as_json: Json = False,
    *,
    bus: Bus,
) -> None:
    """Publish a recording again, with its timing, or faster or slower.

    Messages keep their publish time and type and are marked as replayed. It plays what was recorded
    when it began, also while somebody records. Exits with 1 when there is nothing to play, or when
    something could not be read or was not confirmed by every receiver.
    """
    from hubbub.recorder.player import Player

    speed, names = _parse_rate(rate), _parse_remap(remap or [])
    for pattern in subjects or ():
        check_pattern(pattern)
    start_ns, end_ns = parse_times(path, start, end)
    with open_node(bus) as node:
        player = Player(
            node, path, rate=speed, subjects=subjects or (), start=start_ns, end=end_ns,
            remap=names, open_another=lambda: open_node(replace(bus, log=None)),
        )  # fmt: skip
        with closing(player), CtrlC(player.stop) as ctrl_c:
            ask = partial(_ask, ctrl_c, sys.stderr if as_json else sys.stdout) if step else None
            outcome = _play(player, ctrl_c, wait_subs, is_looping=loop, ask=ask)
    _report(path, player.played, outcome, as_json)
    raise typer.Exit(outcome.code)


@dataclass(slots=True)
class _Outcome:
    """How the playing ended."""

    code: int = 0
    seconds: float = 0.0
    is_confirmed: bool = True
    messages: int = 0
    faults: int = 0


def _play(
    player: "Player",
    ctrl_c: CtrlC,
    wait_subs: int,
    *,
    is_looping: bool,
    ask: "Callable[[Recorded], bool] | None",
) -> _Outcome:
    outcome = _Outcome()

    def tell_fault(fault: str) -> None:
        outcome.faults += 1
        note(fault)

    begin_s = time.monotonic()
    try:
        plan = player.plan(tell_fault)
        outcome.messages = plan.messages
        ctrl_c.wait(_meet, player, wait_subs)
        begin_s = time.monotonic()
        with Progress(None if is_looping else plan.messages) as progress:
            player.play(
                plan, is_looping=is_looping, before=ask,
                on_progress=lambda played: progress.show(played.messages, _state(plan, played)),
                on_fault=tell_fault,
            )  # fmt: skip
    except KeyboardInterrupt:  # While it waited, or pressed twice.
        player.stop()
    if ctrl_c.is_pressed:
        outcome.code = EXIT_INTERRUPTED
    outcome.is_confirmed = is_confirmed(player.flush)
    outcome.seconds = time.monotonic() - begin_s
    is_well = outcome.is_confirmed and outcome.messages and not outcome.faults
    outcome.code = outcome.code or (0 if is_well else 1)
    return outcome


def _meet(player: "Player", wait_subs: int) -> None:
    """Wait for subscribers, or at least until it is known who is there."""
    time.sleep(MEETING_S)
    while player.receivers < wait_subs:
        time.sleep(MEETING_S)


def _state(plan: "Plan", played: "Played") -> str:
    at = show_span(max(0, played.position_ns - plan.start_ns))
    return f"{at} of {show_span(plan.span_ns)}, {plural(played.receivers, 'receiver')}"


def _ask(ctrl_c: CtrlC, screen: TextIO, message: "Recorded") -> bool:
    """Show a message, and wait for Enter; the end of input and q are the end."""
    preview = readable(message.payload[:_PREVIEW_BYTES])
    when = show_time(message.received_ns)
    text = f"{message.offset}  {when}  {escape(message.subject)}  {preview}"
    print(text, end="  ", flush=True, file=screen)
    line = ctrl_c.wait(sys.stdin.readline)
    if not sys.stdin.isatty():
        print(file=screen)
    return bool(line) and line.strip().lower() not in ("q", "quit")


def _parse_rate(text: str) -> float:
    if text == "max":
        return float("inf")
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate <= 1_000_000:
        raise ConfigurationError(f"--rate {text}: give a number from 0 (not included), or max")
    return rate


def _parse_remap(pairs: list[str]) -> dict[str, str]:
    names = {}
    for pair in pairs:
        old, separator, new = pair.partition("=")
        if not separator:
            raise ConfigurationError(f"--remap {pair}: write A=B")
        names[old] = new
    return names


def parse_times(path: Path, start: str | None, end: str | None) -> tuple[int | None, int | None]:
    """Read from when to when; the ends of the recording are only looked for if they are needed."""
    open_store(path)
    first_ns = last_ns = None
    if any(text is not None and text[:1] in ("+", "-") for text in (start, end)):
        from hubbub.store.info import span_of

        first_ns, last_ns = span_of(path)
    return (
        None if start is None else parse_time_ns(start, first_ns, last_ns),
        None if end is None else parse_time_ns(end, first_ns, last_ns),
    )


def _report(path: Path, played: "Played", outcome: _Outcome, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "store": str(path),
                "messages": played.messages,
                "bytes": played.size_bytes,
                "unheard": played.unheard,
                "receivers": played.receivers,
                "rounds": played.rounds,
                "late_ms": round(played.late_ns / 1e6, 3),
                "seconds": round(outcome.seconds, 6),
                "is_confirmed": outcome.is_confirmed,
                "faults": outcome.faults,
            }
        )
        return
    if not outcome.messages:
        note(f"{path} holds nothing that is to be played")
        return
    what = f"{plural(played.messages, 'message')}, {size(played.size_bytes)}"
    who = f"{plural(played.receivers, 'receiver')}" if played.receivers else "nobody"
    unheard = f" ({played.unheard:,} while nobody listened)" if played.unheard else ""
    late = f", at most {played.late_ns / 1e6:,.1f} ms late" if played.late_ns else ""
    note(f"{what}{unheard} to {who} in {outcome.seconds:.1f} s{late}")

"""`hubbub rec`: record what flows over the bus, and say how it goes."""

import signal
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

import hubbub
from hubbub.cli.ctrl_c import CtrlC
from hubbub.cli.options import Bus, Json, on_the_bus
from hubbub.cli.quantities import parse_duration, parse_size
from hubbub.cli.screen import Screen, write_until_the_end
from hubbub.cli.session import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_LOST, GUEST, open_node
from hubbub.cli.terminal import cut, note, plural, print_json, size

_REFRESH_S = 0.2
Services = Annotated[
    list[str] | None,
    typer.Option("--service", metavar="NAME", help="Record this service, too; repeatable."),
]
SplitTime = Annotated[str, typer.Option(metavar="DURATION", help="Close it after so long.")]
AllServices = Annotated[
    bool, typer.Option("--services", help="Record who manages each service there is, too.")
]


@on_the_bus
def rec(
    patterns: Annotated[
        list[str],
        typer.Argument(
            metavar="PATTERN", help='What to record: "*" is one level, a last "..." the rest.'
        ),
    ],
    store: Annotated[
        Path, typer.Option("--output", "-o", metavar="STORE", help="The folder to record into.")
    ],
    duration: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="End after so long, as 90s.")
    ] = None,
    pre: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="Only keep what the last seconds brought; SIGUSR1 starts the writing with it.",
        ),
    ] = "0",
    quota: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Remove the oldest when there is more, as 10GB."),
    ] = None,
    split_size: Annotated[
        str, typer.Option(metavar="SIZE", help="Close a segment at this size.")
    ] = "128MiB",
    split_time: SplitTime = "1s",
    queue: Annotated[
        str, typer.Option(metavar="SIZE", help="So much may wait in memory for the disk.")
    ] = "128MiB",
    service: Services = None,
    all_services: AllServices = False,
    convert: Annotated[
        bool, typer.Option(help="Turn closed segments into Parquet files in the background.")
    ] = True,
    as_json: Json = False,
    *,
    bus: Bus,
) -> None:
    """Record messages by their patterns, and what the bus itself does.

    What is acknowledged is on the disk for certain. Publishers never wait for it. A store that
    exists is gone on with; two recorders cannot share one. Exits with 3 if a message could not be
    kept, here or on its way: the recording says which.
    """
    duration_s = None if duration is None else parse_duration(duration)
    options: dict[str, Any] = {
        "queue_bytes": parse_size(queue),
        "split_size": parse_size(split_size),
        "split_time": parse_duration(split_time),
        "quota": None if quota is None else parse_size(quota),
        "pre": parse_duration(pre),
        "convert": convert,
        "services": service or (),
    }
    trigger, ctrl_c = _Trigger(), CtrlC()
    guest = all_services and not service and GUEST  # Who records one takes part.
    with open_node(bus, services=guest) as node:
        with hubbub.Recorder(node, patterns, store, **options) as recorder:
            watch = partial(_watch, recorder, trigger, ctrl_c, duration_s, as_json)
            code = write_until_the_end(watch)
        lost = sum(one.messages_lost for one in node.statistics().channels)
    _report(recorder, lost, as_json)
    statistics = recorder.statistics()
    if statistics.error:
        raise typer.Exit(EXIT_FAILED)
    raise typer.Exit(EXIT_LOST if lost or statistics.lost else code)


class _Trigger:
    """SIGUSR1, which interrupts nothing: it is looked for between two steps of the work."""

    def __init__(self) -> None:
        self.has_come = False
        signal.signal(signal.SIGUSR1, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.has_come = True


def _watch(
    recorder: hubbub.Recorder,
    trigger: _Trigger,
    ctrl_c: CtrlC,
    duration_s: float | None,
    as_json: bool,
) -> int:
    """Show how it goes until the end, and return the exit code."""
    screen = Screen()
    rate = _Rate()
    where = f"{', '.join(recorder.patterns)} into {recorder.store}"
    begun = "holding back" if not recorder.is_triggered else "recording"
    there = recorder.acknowledged
    place = f"behind the {plural(there, 'message')} that it holds" if there else "from offset 0"
    screen.note(f"{begun} {where} {place}; Ctrl-C ends it")
    end_s = _end_of(duration_s, recorder)
    while time.monotonic() < end_s and not recorder.statistics().error:
        if ctrl_c.is_pressed:
            return EXIT_INTERRUPTED
        if trigger.has_come and not recorder.is_triggered:
            recorder.trigger()
            screen.note("triggered")
            end_s = _end_of(duration_s, recorder)
        if screen.is_terminal and not as_json:
            screen.show([cut(_line(recorder, rate), screen.width or 80)])
        time.sleep(max(0.0, min(_REFRESH_S, end_s - time.monotonic())))
    return 0


def _end_of(duration_s: float | None, recorder: hubbub.Recorder) -> float:
    """Return when to end: so long after the writing began."""
    if duration_s is None or not recorder.is_triggered:
        return float("inf")
    return time.monotonic() + duration_s


class _Rate:
    """Messages a second, of the last second or so."""

    def __init__(self) -> None:
        self._looks: list[tuple[float, int]] = []

    def of(self, recorded: int) -> float:
        """Return the rate, after one more look."""
        now_s = time.monotonic()
        self._looks = [look for look in self._looks if look[0] > now_s - 1.0][-10:]
        self._looks.append((now_s, recorded))
        first_s, first = self._looks[0]
        return (recorded - first) / (now_s - first_s) if now_s > first_s else 0.0


def _line(recorder: hubbub.Recorder, rate: _Rate) -> str:
    statistics = recorder.statistics()
    if not statistics.is_triggered:
        return f"holding {size(statistics.queue_bytes)}; SIGUSR1 starts the writing"
    state = [
        f"{plural(statistics.recorded, 'message')}",
        size(statistics.payload_bytes),
        f"{rate.of(statistics.recorded):,.0f}/s",
        f"{statistics.acknowledged:,} acknowledged in the store",
        f"lost {statistics.lost:,}",
    ]
    if statistics.refused:
        state.append(f"the disk refuses: {statistics.refused}")
    return "  ".join(state)


def _report(recorder: hubbub.Recorder, lost_before: int, as_json: bool) -> None:
    statistics = recorder.statistics()
    if as_json:
        told: dict[str, Any] = {"store": str(recorder.store), "patterns": list(recorder.patterns)}
        print_json({**told, **asdict(statistics), "lost_by_the_bus": lost_before})
        return
    what = f"{plural(statistics.recorded, 'message')} ({size(statistics.payload_bytes)}) recorded"
    if not statistics.recorded:
        what = f"nothing came: nobody published {', '.join(recorder.patterns)}"
    note(f"{what}; {statistics.acknowledged:,} in the store are acknowledged")
    if statistics.lost:
        note(f"{plural(statistics.lost, 'message')} could not be kept: the disk was too slow")
    if lost_before:
        note(f"{plural(lost_before, 'message')} lost on the way here")
    if statistics.removed_messages:
        note(f"{plural(statistics.removed_messages, 'message')} removed by the quota")
    if statistics.error:
        note(f"the recorder has stopped: {statistics.error}")

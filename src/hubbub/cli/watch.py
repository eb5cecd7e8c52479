"""`hubbub hz`, `bw` and `delay`: how often, how much and how late, topic by topic, as it goes on.

All three are one loop with another kind of topic and other columns. They take part in the bus as
any subscriber does, so they see what a subscriber sees: what is lost on the way is lost here, too.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Generic, NoReturn

import typer

import hubbub
from hubbub.cli.ctrl_c import CtrlC
from hubbub.cli.looking import SILENCE_S, describe_silence
from hubbub.cli.options import Bus, Json, on_the_bus
from hubbub.cli.quantities import at_least
from hubbub.cli.rates import T, Topics
from hubbub.cli.screen import Column, Screen, refuse_if_nobody_reads, table, write_until_the_end
from hubbub.cli.session import EXIT_INTERRUPTED, QUEUE_MESSAGES, open_node
from hubbub.cli.terminal import plural, print_json
from hubbub.cli.views import BW, DELAY, HZ, View
from hubbub.errors import ConfigurationError
from hubbub.protocol.delivery import SERVICES

_BATCH_MESSAGES = 10_000  # Counted at once; payloads in shared memory are held so long.
# How often a command that waits looks whether there is something to say, and somebody to read it.
_LOOK_S = 0.5
_WIDE_COLUMNS = 110  # A terminal of so many has room for subject and publisher.

Patterns = Annotated[
    list[str],
    typer.Argument(
        metavar="PATTERN", help='What to watch: "*" is one level, a last "..." the rest.'
    ),
]
Intervals = Annotated[
    int | None, typer.Option("--intervals", "-n", min=1, help="End after so many reports.")
]
Interval = Annotated[
    float,
    typer.Option("--interval", parser=at_least(0.01), metavar="DURATION", help="Report so often."),
]


@on_the_bus
def hz(
    patterns: Patterns,
    intervals: Intervals = None,
    interval: Interval = 1.0,
    as_json: Json = False,
    *,
    bus: Bus,
) -> None:
    """Show how often and how regularly messages come.

    The times between messages are by the publisher's clock. Exits with 1 if -n reports went by and
    nothing came.
    """
    order = Order(patterns, intervals, interval, as_json)
    _watch(open_node(bus), order, HZ)


@on_the_bus
def bw(
    patterns: Patterns,
    intervals: Intervals = None,
    interval: Interval = 1.0,
    as_json: Json = False,
    *,
    bus: Bus,
) -> None:
    """Show how many bytes come, and how large messages are.

    Payloads alone are counted, without what the bus adds. Exits with 1 if -n reports went by and
    nothing came.
    """
    order = Order(patterns, intervals, interval, as_json)
    _watch(open_node(bus), order, BW)


@on_the_bus
def delay(
    patterns: Patterns,
    intervals: Intervals = None,
    interval: Interval = 1.0,
    as_json: Json = False,
    *,
    bus: Bus,
) -> None:
    """Show how long messages are on their way.

    That is from publishing to arrival: between hosts, the difference of their clocks included.
    Exits with 1 if -n reports went by and nothing came.
    """
    order = Order(patterns, intervals, interval, as_json)
    node = open_node(bus)
    if SERVICES in node.links:
        node.close(0)
        raise ConfigurationError("links=services: nobody tells there when messages were published")
    _watch(node, order, DELAY)


@dataclass(frozen=True, slots=True)
class Order:
    """What the user asked for."""

    patterns: list[str]
    intervals: int | None
    interval_s: float
    as_json: bool


def _watch(node: hubbub.Node, order: Order, view: View[T]) -> NoReturn:
    """Follow the patterns to the end, close the node, and exit."""
    with node:
        screen = Screen()
        if view.caution:
            screen.note(view.caution)
        subscription = node.subscribe(order.patterns, queue=QUEUE_MESSAGES)
        watch = Watch(node, subscription, order, view, screen)
        code = write_until_the_end(watch.run)
    raise typer.Exit(code)


class Watch(Generic[T]):
    """Count what a subscription brings, and report it at intervals."""

    def __init__(
        self,
        node: hubbub.Node,
        subscription: hubbub.Subscription,
        order: Order,
        view: View[T],
        screen: Screen,
    ) -> None:
        self._node = node
        self._subscription = subscription
        self._order = order
        self._view = view
        self._screen = screen
        self._topics = Topics(view.make, can_repeat=len(order.patterns) > 1)
        self._ctrl_c = CtrlC()
        self._reports = 0
        self._start_s = self._began_s = self._earlier_s = time.monotonic()
        self._is_silence_told = False
        self._is_doubt_told = False

    def run(self) -> int:
        """Go on until enough was reported, or Ctrl-C; return the exit code."""
        try:
            while self._reports != self._order.intervals and not self._ctrl_c.is_pressed:
                self._count_until(self._began_s + self._order.interval_s)
                if not self._ctrl_c.is_pressed:
                    self._report()
        except KeyboardInterrupt:
            self._ctrl_c.is_pressed = True
        if self._ctrl_c.is_pressed:
            self._report_the_rest()
            return EXIT_INTERRUPTED
        if self._topics:
            return 0
        self._tell_silence("nothing came")
        return 1

    def _count_until(self, end_s: float) -> None:
        """Count messages, in batches because what is there already costs less to take."""
        while (left_s := end_s - time.monotonic()) > 0 and not self._ctrl_c.is_pressed:
            message = self._ctrl_c.wait(self._subscription.receive, min(left_s, _LOOK_S))
            if message is None:
                self._look_around()
                continue
            self._topics.add([message, *self._pending(_BATCH_MESSAGES)])

    def _pending(self, count_max: int) -> Iterator[hubbub.Message]:
        """Take what is there already; nobody else takes any, so there is no wait for them."""
        return islice(self._subscription, min(self._subscription.pending, count_max))

    def _look_around(self) -> None:
        """Say once that nothing comes; end if nobody would read what came."""
        is_long = time.monotonic() - self._start_s >= SILENCE_S
        if not self._topics and is_long and not self._is_silence_told:
            self._tell_silence("nothing yet")
        refuse_if_nobody_reads()

    def _tell_silence(self, what: str) -> None:
        self._is_silence_told = True
        self._screen.note(describe_silence(self._node, self._order.patterns, what))

    def _report_the_rest(self) -> None:
        """Report at the end, with rates over the interval before as well: the last one is short."""
        self._topics.add(self._pending(QUEUE_MESSAGES))
        self._topics.reopen_interval()
        self._began_s = self._earlier_s
        self._report()

    def _report(self) -> None:
        self._reports += 1
        now_s = time.monotonic()
        (self._print_json if self._order.as_json else self._print)(now_s - self._began_s)
        self._tell_doubt()
        self._topics.begin_interval()
        self._earlier_s, self._began_s = self._began_s, now_s

    def _print(self, seconds: float) -> None:
        if not self._topics:
            return
        names: dict[str, Callable[[T], str]] = {"subject": lambda topic: topic.subject}
        if self._are_publishers_shown():
            names["publisher"] = lambda topic: str(topic.source)
        columns = [Column(title, is_number=False) for title in names]
        columns += [Column(title) for title in (*self._view.columns, "lost", "messages")]
        rows = [
            (*(name(topic) for name in names.values()), *self._view.cells(topic, seconds),
             f"{topic.lost:,}", f"{topic.messages:,}")
            for topic in self._topics
        ]  # fmt: skip
        lines = table(columns, rows, self._screen.width)
        if self._topics.others:
            lines.append(
                f"others: {plural(self._topics.others, 'message')} of topics beyond the first"
                f" {len(self._topics):,}"
            )
        if self._subscription.dropped:
            lines.append(
                f"dropped here: {plural(self._subscription.dropped, 'message')} that came too fast"
                " to be counted; they are among the lost"
            )
        self._screen.show(lines)

    def _are_publishers_shown(self) -> bool:
        """Leave publishers out where space is scarce, unless a subject has several."""
        width = self._screen.width
        if width is None or width >= _WIDE_COLUMNS:
            return True
        return len({topic.subject for topic in self._topics}) < len(self._topics)

    def _print_json(self, seconds: float) -> None:
        topics = [
            {
                "subject": topic.subject,
                "source": topic.source.name,
                "source_id": topic.source.id.hex(),
                "incarnation": f"{topic.source.incarnation:016x}",
                "messages": topic.messages,
                "lost": topic.lost,
                "messages_per_second": round(topic.rate(seconds), 3),
                **self._view.fields(topic, seconds),
            }
            for topic in self._topics
        ]
        print_json(
            {
                "interval": self._reports,
                "seconds": round(seconds, 6),
                "dropped": self._subscription.dropped,
                "others": self._topics.others,
                "topics": topics,
            }
        )

    def _tell_doubt(self) -> None:
        if self._is_doubt_told:
            return
        doubt = next(filter(None, map(self._view.doubt, self._topics)), None)
        if doubt is not None:
            self._is_doubt_told = True
            self._screen.note(doubt)

"""One topic: how it flows, who is at its ends, and what the newest message says."""

from collections.abc import Iterator
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Static

from hubbub.cli.directory import list_topics
from hubbub.cli.formats import write_clock
from hubbub.cli.screen import UNKNOWN, Column, duration, table
from hubbub.cli.terminal import escape, size
from hubbub.cli.top.gather import Look
from hubbub.cli.top.payload import write_payload
from hubbub.cli.top.sheets import add_trends, draw_course
from hubbub.cli.top.traffic import TopicFigures
from hubbub.cli.views import write_rate

_BAR_LINES = 3
_COLUMNS = (
    Column("publisher", is_number=False),
    *(Column(title) for title in ("per s", "bytes/s", "p50", "p99", "max", "lost", "messages")),
)


class TopicScreen(Screen[None]):
    """A topic of the bus, drawn anew with each look."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "app.pop_screen", "Back")]

    def __init__(self, subject: str, seen: Look) -> None:
        super().__init__()
        self._subject = subject
        self._first = seen

    def compose(self) -> ComposeResult:
        """Lay out: the subject, its course, its ends, its newest message."""
        yield Static(Text(f" {escape(self._subject)}", style="bold"), id="subject")
        yield Static(id="course")
        yield Static(id="bars")
        yield Static(id="ends")
        with VerticalScroll(id="message"):
            yield Static(id="payload")
        yield Footer()

    def on_mount(self) -> None:
        """Show what is known already."""
        self.show(self._first)
        self.query_one("#message").focus()

    def show(self, seen: Look) -> None:
        """Show what a look saw of this topic."""
        flows = [one for one in seen.topics if one.subject == self._subject]
        trend = add_trends(flows)
        self.query_one("#course", Static).update(_course(trend))
        bars = "\n".join(draw_course(trend, self.size.width - 2, _BAR_LINES))
        self.query_one("#bars", Static).update(Text(bars, style="dodger_blue1"))
        ends = Text("\n".join(_ends(self._subject, seen, flows, self.size.width - 2)))
        self.query_one("#ends", Static).update(ends)
        payload = Text("\n".join(_newest(self._subject, seen, flows)))
        self.query_one("#payload", Static).update(payload)


def _course(trend: list[float]) -> Text:
    if not any(trend):
        return Text("nothing came yet", style="dim")
    span = f"in the last {len(trend)} s"
    return Text(f"messages a second {span}, up to {write_rate(max(trend))}", style="dim")


def _ends(subject: str, seen: Look, flows: list[TopicFigures], width: int) -> Iterator[str]:
    """Write a line for each publisher, and who wants it."""
    rows = [_publisher_row(one) for one in flows]
    silent = _publishers(subject, seen) - {row[0] for row in rows}
    rows += [(name, *[UNKNOWN] * (len(_COLUMNS) - 1)) for name in sorted(silent)]
    yield from table(_COLUMNS, rows, width)
    yield f"wanted by {', '.join(sorted(_subscribers(subject, seen))) or 'nobody else'}"


def _publishers(subject: str, seen: Look) -> set[str]:
    declared = {
        str(one.node) for topic in list_topics(seen.peers, subject) for one in topic.publishers
    }
    return declared | {str(one.source) for one in seen.producers if one.subject == subject}


def _subscribers(subject: str, seen: Look) -> set[str]:
    found = {
        escape(str(one.node.node))
        for topic in list_topics(seen.peers, subject)
        for one in topic.subscribers
    }
    for producer in seen.producers:
        if producer.subject == subject:
            found |= {
                escape(f"{one.source} each {one.period_ms:g} ms") for one in producer.consumers
            }
    return found


def _publisher_row(one: TopicFigures) -> tuple[str, ...]:
    late = (
        [one.percentile_ns(share) for share in (0.5, 0.99, 1)] if one.latencies_ns else [None] * 3
    )
    lost = UNKNOWN if one.is_sampled else f"{one.lost:,}"
    return (
        str(one.source), write_rate(one.rate), size(one.byte_rate), *map(duration, late), lost,
        f"{one.messages:,}",
    )  # fmt: skip


def _newest(subject: str, seen: Look, flows: list[TopicFigures]) -> Iterator[str]:
    """Write the message that was published last."""
    if not flows:
        return
    flow = max(flows, key=lambda one: one.newest.published_ns)
    schema = next(iter(_types(subject, seen, flow)), "")
    newest = flow.newest
    yield (
        f"#{newest.sequence:,} of {write_clock(newest.published_ns)}, {size(newest.size_bytes)}"
        f" {escape(schema) or 'of bytes'}, by {newest.link}"
    )
    yield from write_payload(newest.preview, schema, newest.size_bytes)


def _types(subject: str, seen: Look, flow: TopicFigures) -> list[str]:
    """Name the type that a publisher declares for a subject."""
    return [
        one.schema
        for peer in seen.peers
        for one in peer.publications
        if one.subject == subject and one.node.id == flow.source.id and one.schema
    ]

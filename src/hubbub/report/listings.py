"""The tables behind the pictures, as cells of text: the same on a page and on a terminal."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from hubbub.limits import REPORT_ROWS_MAX
from hubbub.report.figures import Figures
from hubbub.report.nodes import read_detail
from hubbub.report.words import UNKNOWN, cut, latency, moment, plural, share, size


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; numbers stand on the right, a narrow terminal has no optional ones."""

    title: str
    is_number: bool = True
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """A table: its name, its cells, and how many rows it would have if all were shown."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    rows_in_all: int

    def shortened(self, rows_max: int) -> "Listing":
        """Keep the first rows."""
        return replace(self, rows=self.rows[:rows_max])

    @property
    def note(self) -> str:
        """Say how many rows there are, and whether these are all."""
        whole = plural(self.rows_in_all, "row")
        shown = len(self.rows)
        return whole if shown == self.rows_in_all else f"the first {shown:,} of {whole}"


def _listing(
    name: str, title: str, columns: str, rows: Iterable[Sequence[str]], in_all: int
) -> Listing:
    """Make a table; of `columns`, those with a `-` in front hold text, a `?` behind is optional."""
    heads = tuple(
        Column(one.strip("-?").replace("_", " "), not one.startswith("-"), one.endswith("?"))
        for one in columns.split()
    )
    kept = tuple(tuple(map(cut, row)) for row in islice(rows, REPORT_ROWS_MAX))
    return Listing(name, title, heads, kept, in_all)


def list_tables(figures: Figures) -> dict[str, Listing]:
    """Return all tables by name; one may have no rows."""
    made = (_topics, _gaps, _quarantine, _periods, _consumers, _flows, _nodes, _services, _counters)
    return {table.name: table for table in (make(figures) for make in made)}


def _topics(figures: Figures) -> Listing:
    rows = (
        (
            *(one.subject, one.source, f"{one.messages:,}", size(one.bytes)),
            *(latency(one.latency.p50_us), latency(one.latency.p95_us)),
            *(latency(one.latency.p99_us), latency(one.latency.max_us)),
            *(latency(one.latency.deviation_us), f"{one.lost:,}", f"{one.duplicates:,}"),
        )
        for one in figures.topics
    )
    heads = "-subject -publisher messages data p50 p95? p99 max jitter? lost twice?"
    return _listing("topics", "Topics", heads, rows, figures.topics_in_all)


def _gaps(figures: Figures) -> Listing:
    rows = (
        (
            *(one.subject, one.source, f"{one.count:,}", f"{one.first:,}", f"{one.last:,}"),
            *(moment(one.after_us), moment(one.before_us)),
            *(one.reported_as or "by nobody", one.lost_by),
        )
        for one in figures.gaps
    )
    heads = "-subject -publisher lost first last after before? -reported -lost_by?"
    return _listing("gaps", "Holes in the sequences", heads, rows, figures.gaps_in_all)


def _quarantine(figures: Figures) -> Listing:
    rows = (
        (
            *(one.reason, f"{one.rows:,}", ", ".join(one.subjects) or UNKNOWN),
            *(moment(one.first_us), moment(one.last_us), one.example or UNKNOWN),
        )
        for one in figures.quarantined
    )
    heads = "-reason rows -subjects first last -example"
    return _listing("quarantine", "Rows put aside", heads, rows, len(figures.quarantined))


def _periods(figures: Figures) -> Listing:
    rows = (
        (
            *(one.subject, one.source, latency(one.period_ns / 1000), f"{one.slots:,}"),
            *(f"{one.met:,}", f"{one.late:,}", f"{one.missed:,}", share(one.met, one.slots)),
        )
        for one in figures.periods
    )
    heads = "-subject -publisher period slots met late missed kept"
    return _listing("slots", "Periods", heads, rows, len(figures.periods))


def _consumers(figures: Figures) -> Listing:
    rows = (
        (
            *(one.subject, one.source, latency(one.period_ns / 1000), f"{one.slots:,}"),
            *(f"{one.met:,}", f"{one.missed:,}", f"{one.late:,}", share(one.met, one.slots)),
        )
        for one in figures.consumers
    )
    heads = "-subject -consumer period slots met missed came_late got"
    return _listing("consumers", "Consumers", heads, rows, len(figures.consumers))


def _flows(figures: Figures) -> Listing:
    rows = (
        (
            *(one.source, one.receiver, f"{one.messages:,}", size(one.bytes)),
            _subjects(one.subjects, one.subjects_in_all),
        )
        for one in figures.flows
    )
    heads = "-publisher -receiver messages data -subjects"
    return _listing("flows", "Who talks to whom", heads, rows, len(figures.flows))


def _subjects(subjects: Sequence[str], in_all: int) -> str:
    more = in_all - len(subjects)
    return ", ".join(subjects) + (f" and {more:,} more" if more else "")


def _nodes(figures: Figures) -> Listing:
    rows = sorted(_happenings(figures))
    heads = "time -node -what -detail"
    cells = ((moment(time_us, has_date=True), *texts) for time_us, *texts in rows)
    return _listing("events", "What happened to the nodes", heads, cells, len(rows))


def _happenings(figures: Figures) -> Iterator[tuple[int, str, str, str]]:
    for lane in figures.lanes:
        for stay in lane.stays:
            if stay.first_us is not None:
                yield stay.first_us, lane.node, "was there" if stay.was_there else "joined", ""
            if stay.last_us is not None:
                yield stay.last_us, lane.node, "left", stay.ended or ""
        for mark in lane.marks:
            often = "" if mark.count == 1 else f" ({mark.count:,} times)"
            yield mark.time_us, lane.node, mark.kind + often, _told(mark.detail)


def _told(detail: str) -> str:
    """Write out what an event tells, but for who it is about: that stands beside it."""
    told = read_detail(detail)
    plain = {name: value for name, value in told.items() if isinstance(value, str | int | float)}
    return ", ".join(
        f"{name} {value}" for name, value in plain.items() if value != "" and name != "channel"
    )


def _services(figures: Figures) -> Listing:
    rows = (
        (
            *(one.service, f"{one.epoch:,}", one.manager),
            *(moment(one.since_us), moment(one.until_us), f"{one.messages:,}"),
        )
        for one in figures.managers
    )
    heads = "-service epoch -manager since until messages"
    return _listing("services", "Managers of services", heads, rows, len(figures.managers))


def _counters(figures: Figures) -> Listing:
    rows = ((name, f"{value:,}") for name, value in figures.counters.items())
    title = "What the recorder's node counted"
    return _listing("counters", title, "-counter value", rows, len(figures.counters))

"""The report as one HTML file: no script, nothing loaded, light or dark as the reader likes."""

from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Final

from hubbub.limits import REPORT_BYTES_MAX, REPORT_ROWS_MAX, REPORT_TOPICS_MAX
from hubbub.report.drawing import NARROW, WIDE, Sheet
from hubbub.report.figures import Clock, Figures, Series
from hubbub.report.findings import Finding, Level, find, summarise
from hubbub.report.listings import Listing, list_tables
from hubbub.report.markup import Child, Markup, element, join
from hubbub.report.pictures_nodes import draw_matrix, draw_timeline
from hubbub.report.pictures_time import (
    PERCENTILES,
    draw_latencies,
    draw_layers,
    draw_ranges,
    say_rate,
)
from hubbub.report.pictures_topics import draw_loss_map, draw_periods
from hubbub.report.words import day, latency, moment, plural, short, size, span

_ROWS_TRIED: Final = (REPORT_ROWS_MAX, REPORT_ROWS_MAX // 4, REPORT_ROWS_MAX // 16)
_LEVELS: Final = {
    Level.BAD: ("bad", "Problem"),
    Level.WARNING: ("warning", "Attention"),
    Level.NOTE: ("note", "Note"),
    Level.GOOD: ("good", "Good"),
}


def write_page(figures: Figures, made: str) -> str:
    """Write the whole page; `made` says when and by what.

    Long names may make it too large: then the tables below the pictures are shortened.
    """
    tables = list_tables(figures)
    for rows_max in _ROWS_TRIED:
        shortened = {name: table.shortened(rows_max) for name, table in tables.items()}
        page = _write(figures, made, shortened)
        if len(page.encode()) <= REPORT_BYTES_MAX:
            break
    return page


def _write(figures: Figures, made: str, tables: dict[str, Listing]) -> str:
    title = "Hubbub report"
    sections = [
        _findings(find(figures)),
        _traffic(figures, tables),
        _latency(figures),
        _loss(figures, tables),
        _periods(figures, tables),
        _talk(figures, tables),
        _nodes(figures, tables),
        _others(figures, tables),
    ]
    page = element(
        "html",
        element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", name="color-scheme", content="light dark"),
            element("title", f"{title}: {figures.path}"),
            element("style", Markup(_style())),
        ),
        element("body", element("main", _head(figures, title), *sections, _foot(figures, made))),
        lang="en",
    )
    return f"<!DOCTYPE html>\n{page}\n"


def _style() -> str:
    return files("hubbub.report").joinpath("style.css").read_text()


def _head(figures: Figures, title: str) -> Markup:
    when = f"{figures.path}"
    if figures.clock.columns:
        first_us, last_us = figures.span_us or (figures.clock.first_us, figures.clock.last_us)
        until = moment(last_us, has_date=day(first_us) != day(last_us))
        when = f"{moment(first_us, has_date=True)} to {until} UTC · {figures.path}"
    return element(
        "header",
        element("h1", title),
        element("p", when, class_="where"),
        element("p", summarise(figures), class_="summary"),
        _tiles(figures),
        element("nav", *(element("a", name, href=f"#{at}") for at, name in _SECTIONS)),
    )


_SECTIONS: Final = (
    ("findings", "Findings"),
    ("traffic", "Traffic"),
    ("latency", "Latency"),
    ("loss", "Loss"),
    ("periods", "Periods"),
    ("talk", "Who talks"),
    ("nodes", "Nodes"),
)


def _tiles(figures: Figures) -> Markup:
    first_us, last_us = figures.span_us or (figures.clock.first_us, figures.clock.last_us)
    seconds = max(last_us - first_us, 1) / 1_000_000
    tiles = (
        ("messages", short(figures.messages), f"{short(figures.messages / seconds)} a second", ""),
        ("data", size(figures.bytes), f"{size(figures.bytes / seconds)} a second", ""),
        ("lost", short(figures.lost), plural(figures.gaps_in_all, "hole"), "lost"),
        ("repaired", short(sum(figures.repairs.values())), "frames, sent again", ""),
        ("latency p50", latency(figures.latency.p50_us), "half are quicker", ""),
        (
            "latency p99",
            latency(figures.latency.p99_us),
            f"max {latency(figures.latency.max_us)}",
            "",
        ),
    )
    return element(
        "dl",
        *(
            element(
                "div",
                element("dt", name),
                element("dd", value, class_=kind if kind and figures.lost else None),
                element("dd", below, class_="below"),
            )
            for name, value, below, kind in tiles
        ),
        class_="tiles",
    )


_PLACES: Final = {
    "loss": "see the map",
    "gaps": "see the holes",
    "nodes": "see the nodes",
    "topics": "see the topics",
    "latency": "see the latencies",
    "periods": "see the periods",
    "quarantine": "see the rows",
    "services": "see the managers",
    "counters": "see the counters",
}


def _findings(findings: Sequence[Finding]) -> Markup:
    return _section(
        "findings",
        "Findings",
        element("ul", *(_finding(one) for one in findings), class_="findings"),
    )


def _finding(finding: Finding) -> Markup:
    class_, name = _LEVELS[finding.level]
    evidence: list[Child] = [element("span", one) for one in finding.evidence]
    if finding.place:
        evidence.append(element("a", _PLACES.get(finding.place, "see"), href=f"#{finding.place}"))
    return element(
        "li",
        element("span", name, class_="badge"),
        element(
            "div",
            element("p", finding.text),
            element("p", *evidence, class_="evidence") if evidence else None,
        ),
        class_=class_,
    )


def _traffic(figures: Figures, tables: dict[str, Listing]) -> Markup:
    clock = figures.clock
    return _section(
        "traffic",
        "Traffic over time",
        _legend(
            [(_swatch(place, one), one.label) for place, one in enumerate(figures.message_rates)]
        ),
        element("h3", "Messages a second"),
        _draw(
            lambda sheet: draw_layers(figures.message_rates, clock, sheet, "messages/s", say_rate)
        ),
        element("h3", "Bytes a second"),
        _draw(lambda sheet: draw_layers(figures.byte_rates, clock, sheet, "bytes/s", size)),
        _columns_note(clock),
        _details(tables["topics"]),
        empty=None if clock.columns else _why_empty(figures, "topic_health"),
    )


def _swatch(place: int, series: Series) -> str:
    return "rest" if series.is_rest else f"s{place}"


def _columns_note(clock: Clock) -> Markup:
    windows = clock.column_us // clock.window_us
    what = f"Each column is {span(clock.column_us)}"
    merged = f": {windows:,} windows of the tables are drawn as one" if windows > 1 else ""
    is_cut = clock.length_us(0) < clock.column_us
    cut = "; the first begins and the last ends with the recording" if is_cut else ""
    return element("p", f"{what}{merged}{cut}.", class_="aside")


def _latency(figures: Figures) -> Markup:
    names = ("half are quicker", "19 of 20 are quicker", "99 of 100 are quicker", "the slowest")
    legend = _legend(
        [(name, f"{name}: {told}") for (name, _), told in zip(PERCENTILES, names, strict=True)]
    )
    return _section(
        "latency",
        "Latency",
        element(
            "p",
            "From publishing to arrival at the recorder, on a logarithmic scale. "
            "Between hosts it contains the difference of their clocks.",
        ),
        legend,
        element("h3", "All topics, over time"),
        _draw(lambda sheet: draw_latencies(figures.latencies, figures.clock, sheet)),
        element("h3", "Each topic; the number is its p99"),
        _draw(lambda sheet: draw_ranges(figures.topics, sheet)),
        _shown_note(sum(bool(one.cells) for one in figures.topics), figures.topics_in_all, "topic"),
        empty=None if figures.latency.max_us is not None else _why_empty(figures, "topic_health"),
    )


def _loss(figures: Figures, tables: dict[str, Listing]) -> Markup:
    shown = sum(bool(one.cells) for one in figures.topics)
    return _section(
        "loss",
        "Loss and repair",
        _legend(
            [
                *(("fine", "all came"), ("r2", "none lost, but its publisher had to repair")),
                *(("l1", "1 lost"), ("l2", "2 to 9"), ("l3", "10 to 99"), ("l4", "100 or more")),
            ]
        ),
        _draw(lambda sheet: draw_loss_map(figures.topics, figures.clock, sheet)),
        _columns_note(figures.clock),
        _shown_note(shown, figures.topics_in_all, "topic"),
        _details(tables["gaps"]),
        empty=None if shown else _why_empty(figures, "topic_health"),
    )


def _periods(figures: Figures, tables: dict[str, Listing]) -> Markup:
    return _section(
        "periods",
        "Period compliance",
        _legend([("met", "met"), ("late", "late"), ("missed", "missed")]),
        _draw(lambda sheet: draw_periods(figures.periods, sheet)),
        _details(tables["slots"]),
        _details(tables["consumers"]),
        empty=None if figures.periods else _why_empty(figures, "period_compliance"),
    )


def _talk(figures: Figures, tables: dict[str, Listing]) -> Markup:
    return _section(
        "talk",
        "Who talks to whom",
        element(
            "p", "Messages from the publishers on the left to the receivers above.", class_="wide"
        ),
        _draw(lambda sheet: draw_matrix(figures.flows, sheet)),
        _details(tables["flows"]),
        empty=None if figures.flows else _why_empty(figures, "traffic_matrix"),
    )


def _nodes(figures: Figures, tables: dict[str, Listing]) -> Markup:
    kinds = (
        *(("joined", "joined"), ("left", "left"), ("died", "killed, crashed or silent")),
        *(("slow", "too slow"), ("gap", "messages lost"), ("other", "other events")),
    )
    return _section(
        "nodes",
        "Nodes",
        _legend(kinds),
        _draw(lambda sheet: draw_timeline(figures.lanes, figures.clock, sheet)),
        _shown_note(len(figures.lanes[:REPORT_TOPICS_MAX]), figures.lanes_in_all, "node"),
        _details(tables["events"]),
        empty=None if figures.lanes else _why_empty(figures, "node_timeline"),
    )


def _others(figures: Figures, tables: dict[str, Listing]) -> Markup:
    return join(
        _section("quarantine", "Rows put aside", _table(tables["quarantine"]))
        if figures.quarantined
        else None,
        _section("services", "Services", _table(tables["services"])) if figures.managers else None,
        _section("counters", tables["counters"].title, _table(tables["counters"]))
        if figures.counters
        else None,
    )


def _foot(figures: Figures, made: str) -> Markup:
    return element(
        "footer",
        element("p", f"{made} All times are UTC. What is not in the tables is not in this report."),
        element("p", f"Tables: {figures.path}"),
    )


def _why_empty(figures: Figures, table: str) -> str:
    if table in figures.missing:
        return f"The table {table} is not there."
    return _NOTHING.get(table, "Nothing of this in the tables.")


_NOTHING: Final = {"period_compliance": "No time-triggered topic in this recording."}


def _section(name: str, title: str, *children: Child, empty: str | None = None) -> Markup:
    if empty is not None:
        children = (element("p", empty, class_="aside"),)
    return element("section", element("h2", title), *children, id=name)


def _draw(draw: Callable[[Sheet], Markup]) -> Markup:
    return element("figure", draw(WIDE), draw(NARROW))


def _legend(entries: Sequence[tuple[str, str]]) -> Markup:
    return element(
        "ul",
        *(element("li", element("i", class_=f"swatch {class_}"), name) for class_, name in entries),
        class_="legend",
    )


def _shown_note(shown: int, in_all: int, noun: str) -> Markup | None:
    if shown >= in_all:
        return None
    return element("p", f"{shown:,} of {plural(in_all, noun)} are drawn.", class_="aside")


def _details(table: Listing) -> Markup | None:
    if not table.rows:
        return None
    summary = element("summary", f"{table.title} ", element("small", table.note))
    # A browser that is led into a folded part unfolds it.
    return element("details", summary, element("div", _table(table), id=table.name))


def _table(table: Listing) -> Markup:
    kinds = ["number" if column.is_number else None for column in table.columns]
    head = element(
        "tr",
        *(
            element("th", column.title, class_=kind, scope="col")
            for column, kind in zip(table.columns, kinds, strict=True)
        ),
    )
    rows = [
        element(
            "tr", *(element("td", cell, class_=kind) for cell, kind in zip(row, kinds, strict=True))
        )
        for row in table.rows
    ]
    inside = element("table", element("thead", head), element("tbody", *rows))
    return element("div", inside, class_="scroll", tabindex=0)

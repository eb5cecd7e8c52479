"""One file that needs nothing else, that nobody can break from outside, and that stays small."""

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from importlib.resources import files
from itertools import combinations
from math import dist

import pytest

from hubbub.limits import REPORT_BYTES_MAX, REPORT_TIMES_MAX, REPORT_TOPICS_MAX
from hubbub.report.building import build
from hubbub.report.page import write_page
from hubbub.report.reading import Tables
from tests.unit.report.literal import (
    DASH,
    LIDAR,
    event,
    gap,
    health,
    morning,
    sent,
    slots,
    tables,
)

MADE = "Made by a test."
HOSTILE = "/<script>alert('x')</script>\"onload=\"&\x1b[2J\u202e世界"
_VOID = {"meta"}


class Page(HTMLParser):
    """Reads a page; whatever is opened must be closed in the right order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


def hostile() -> Tables:
    """Put the same name wherever a name may stand."""
    named = {"subject": HOSTILE, "source_name": HOSTILE, "source_id": HOSTILE}
    met = {"slots": 9, "met": 7, "missed": 1, "late": 1}
    told = {"reason": HOSTILE, "peer": {}, "policy": HOSTILE, "dropped": 1}
    kinds = ["PeerJoined", "PeerLeft", "SlowConsumer", HOSTILE]
    happened = [event(at_s, kind, HOSTILE, **told) for at_s, kind in enumerate(kinds)]
    return tables(
        topic_health=[health(0, HOSTILE, lost=1) | named, health(0, HOSTILE)],
        gaps=[gap("", 1, 1) | named | {"reported_as": HOSTILE, "lost_by": HOSTILE}],
        quarantine=[{"reason": HOSTILE, "subject": HOSTILE, "detail": HOSTILE}],
        period_compliance=[slots("", **met) | named],
        node_timeline=[{**row, "node_name": HOSTILE} for row in happened],
        traffic_matrix=[
            sent(LIDAR, DASH, HOSTILE, 5)
            | named
            | {"receiver_id": HOSTILE, "receiver_name": HOSTILE}
        ],
        service_managers=[
            {"service": HOSTILE, "epoch": n, "manager_id": HOSTILE, "manager_name": HOSTILE}
            for n in (1, 2)
        ],
    )


@pytest.mark.parametrize("made", [morning, hostile, tables])
def test_page_is_well_formed(made: object) -> None:
    assert callable(made)
    text = write_page(build(made()), MADE)
    page = Page(text)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    ET.fromstring(text.removeprefix("<!DOCTYPE html>\n"))  # Stricter: it is XML as well.


@pytest.mark.parametrize("made", [morning, hostile])
def test_page_loads_nothing_and_runs_nothing(made: object) -> None:
    assert callable(made)
    text = write_page(build(made()), MADE)
    page = Page(text)
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form", "use"}
    names = {name for _, attributes in page.tags for name in attributes}
    assert not {name for name in names if name.startswith("on") or name in ("src", "srcset")}
    links = [attributes["href"] or "" for _, attributes in page.tags if "href" in attributes]
    assert links
    assert all(link.startswith("#") for link in links)
    assert not re.search(r"https?://|url\(|@import|javascript:", text.lower())


def test_hostile_names_are_shown_as_text() -> None:
    text = write_page(build(hostile()), MADE)
    assert "<script" not in text.lower()
    assert "\x1b" not in text and "\u202e" not in text
    assert "alert('x')" in Page(text).text


def test_links_lead_to_places_that_exist() -> None:
    page = Page(write_page(build(morning()), MADE))
    ids = {attributes.get("id") for _, attributes in page.tags}
    links = {attributes["href"] for _, attributes in page.tags if attributes.get("href")}
    assert {str(link)[1:] for link in links} <= ids


def test_every_picture_is_there_for_wide_screens_and_for_phones() -> None:
    page = Page(write_page(build(morning()), MADE))
    drawn = [attributes for tag, attributes in page.tags if tag == "svg"]
    names = [
        {attributes["aria-label"] for attributes in drawn if attributes["class"] == kind}
        for kind in ("wide", "narrow")
    ]
    assert names[0] == names[1]
    assert names[0] == {
        *("messages/s over time, by subject", "bytes/s over time, by subject"),
        *("latency percentiles over time", "latency percentiles of each topic"),
        *("messages lost and repaired, by topic and time", "slots met, late and missed"),
        *("who talks to whom", "when each node was there"),
    }


def test_empty_tables_are_said_to_be_empty() -> None:
    page = Page(write_page(build(tables(missing=("gaps", "traffic_matrix"))), MADE))
    assert "svg" not in {tag for tag, _ in page.tags}
    assert "Nothing of this in the tables." in page.text
    assert "No time-triggered topic in this recording." in page.text
    assert "The table traffic_matrix is not there." in page.text
    assert "Tables that are not there: gaps, traffic_matrix." in page.text


def test_what_is_thinned_is_said_to_be() -> None:
    rows = [health(n, f"/t{m}") for n in range(2 * REPORT_TIMES_MAX) for m in range(40)]
    text = Page(write_page(build(tables(topic_health=rows)), MADE)).text
    assert "Each column is 20 s: 2 windows of the tables are drawn as one." in text
    assert f"{REPORT_TOPICS_MAX} of 40 topics are drawn." in text


def test_page_stays_small_whatever_the_names_and_numbers_are() -> None:
    """Every cell of the map lost something, every node has many events, all names are long."""
    name = "<" * 250
    topics = [f"/{n}/{'&' * 1000}" for n in range(2 * REPORT_TOPICS_MAX)]
    times = range(REPORT_TIMES_MAX)
    bad = tables(
        topic_health=[
            health(n, topic, lost=3, source_name=name) for n in times for topic in topics
        ],
        gaps=[gap(topic, n, n, source_name=name) for topic in topics for n in range(8)],
        node_timeline=[
            event(10 * n, kind, f"{node:06x}", text=name)
            for node in range(2 * REPORT_TOPICS_MAX)
            for n in times
            for kind in ("Starved", "GapAbandoned")
        ],
        traffic_matrix=[
            sent(f"{one:06x}", f"{other:06x}", topics[0], one * other)
            for one in range(40)
            for other in range(40)
        ],
    )
    page = write_page(build(bad), MADE)
    assert 500_000 < len(page.encode()) <= REPORT_BYTES_MAX


# How people see who lack one kind of cone (Machado and others 2009), in linear light.
_EYES = {
    "most": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.1523, 1.0526, -0.2049), (0.1145, 0.7863, 0.0992), (-0.0039, -0.0481, 1.052)),
    "deuteranopia": ((0.3673, 0.8606, -0.228), (0.2801, 0.6725, 0.0474), (-0.0118, 0.0429, 0.9689)),
    "tritanopia": ((1.2555, -0.0767, -0.1788), (-0.0784, 0.9308, 0.1476), (0.0047, 0.6914, 0.3039)),
}
_APART = 0.06  # Of lightness and hue together; neighbours on a screen differ by less than 0.02.


def seen(colour: str, eye: tuple[tuple[float, ...], ...]) -> tuple[float, ...]:
    """Turn a colour into lightness and two hues as such an eye sees them (OKLab)."""
    light = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    light = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in light]
    red, green, blue = (
        max(sum(factor * one for factor, one in zip(row, light, strict=True)), 0) for row in eye
    )
    long = (0.4122 * red + 0.5363 * green + 0.0514 * blue) ** (1 / 3)
    middle = (0.2119 * red + 0.6807 * green + 0.1074 * blue) ** (1 / 3)
    short = (0.0883 * red + 0.2817 * green + 0.63 * blue) ** (1 / 3)
    return (
        0.2105 * long + 0.7936 * middle - 0.0041 * short,
        1.978 * long - 2.4286 * middle + 0.4506 * short,
        0.0259 * long + 0.7828 * middle - 0.8087 * short,
    )


@pytest.mark.parametrize("eye", _EYES)
@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    "names",
    [
        ("s0", "s1", "s2", "s3", "s4"),
        ("p50", "p95", "p99", "max"),
        ("loss", "repair", "fine"),
        ("h3", "late", "loss"),
    ],
    ids=" ".join,
)
def test_colours_can_be_told_apart_by_everybody(
    names: tuple[str, ...], scheme: int, eye: str
) -> None:
    style = files("hubbub.report").joinpath("style.css").read_text()
    colours = [re.findall(rf"--{name}: (#\w{{6}});", style)[scheme] for name in names]
    for one, other in combinations(colours, 2):
        assert dist(seen(one, _EYES[eye]), seen(other, _EYES[eye])) > _APART, (one, other)

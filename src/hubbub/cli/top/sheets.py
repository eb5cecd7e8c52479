"""The tables of `hubbub top`, each made of one look at the bus; titles and units fit 80 columns."""

from collections.abc import Callable, Iterator
from typing import Final

import hubbub
from hubbub.awareness import RemotePeer
from hubbub.cli.directory import Topic, list_topics
from hubbub.cli.formats import write_clock
from hubbub.cli.screen import UNKNOWN, Column, duration
from hubbub.cli.terminal import plural, size
from hubbub.cli.times import show_uptime
from hubbub.cli.top.gather import Look, Told
from hubbub.cli.top.links import link_rows
from hubbub.cli.top.sheet import BAD, COURSE, FAINT, GOOD, PLAIN, Cell, Row, Sheet, count, text
from hubbub.cli.top.traffic import TopicFigures
from hubbub.cli.views import write_rate
from hubbub.gateway.routes import ROUTES_PATTERN
from hubbub.statistics import PeerStatistics
from hubbub.telling import SUBJECTS

# That somebody looks on makes nodes and gateways tell of themselves; it is no traffic of the bus.
_OWN: Final = (SUBJECTS.removesuffix("*"), ROUTES_PATTERN.removesuffix("*"))
_BARS: Final = "▁▂▃▄▅▆▇█"
_TREND_COLUMNS: Final = 10
_HEADROOM: Final = 1.3  # What is steady is no full block.
_GOOD_EVENTS: Final = (hubbub.PeerJoined, hubbub.LinkUp, hubbub.PeriodGranted)
_PLAIN_EVENTS: Final = (
    hubbub.SubscriberMatched, hubbub.SubscriberUnmatched, hubbub.PublisherMatched,
    hubbub.PublisherUnmatched, hubbub.Closed,
)  # fmt: skip


def _columns(texts: str, numbers: str = "") -> tuple[Column, ...]:
    """Name columns: those of text, then those of numbers."""
    named = [Column(title, is_number=False) for title in texts.split(",")]
    return (*named, *(Column(title) for title in numbers.split(",") if title))


def topics(look: Look) -> Sheet:
    """List what is published and wanted, with what flows of it."""
    columns = (*_columns("subject,ends", "per s,bytes/s,p50,lost"), Column("trend", False))
    flowing: dict[str, list[TopicFigures]] = {}
    for one in look.topics:
        flowing.setdefault(one.subject, []).append(one)
    declared = {topic.subject: topic for topic in list_topics(look.peers)}
    for producer in look.producers:
        declared.setdefault(producer.subject, Topic(producer.subject))
    own = [one for one in flowing.keys() | declared.keys() if one.startswith(_OWN)]
    others = (declared.keys() | flowing.keys()).difference(own)
    subjects = sorted(one for one in others if hubbub.matches(look.pattern, one))
    ends = _sampled_ends(look)
    rows = tuple(
        _topic_row(
            subject, declared.get(subject, Topic(subject)), flowing.get(subject, []),
            ends.get(subject, (0, 0)),
        )
        for subject in subjects
    )  # fmt: skip
    return Sheet("Topics", columns, rows, "nobody publishes or wants anything")


def _sampled_ends(look: Look) -> dict[str, tuple[int, int]]:
    """Count the producers and consumers of each time-triggered subject."""
    ends: dict[str, tuple[int, int]] = {}
    for one in look.producers:
        makers, _ = ends.get(one.subject, (0, 0))
        ends[one.subject] = (makers + 1, len(one.consumers))
    return ends


def _topic_row(
    subject: str, topic: Topic, flows: list[TopicFigures], sampled: tuple[int, int]
) -> Row:
    publishers = len(topic.publishers) + sampled[0]
    subscribers = len(topic.subscribers) + sampled[1]
    tone = PLAIN if publishers and subscribers else FAINT
    return Row(
        subject,
        (
            text(subject),
            Cell(f"{publishers}→{subscribers}", (publishers, subscribers), tone),
            *figures(flows),
            Cell(draw_trend(add_trends(flows)), tone=COURSE),
        ),
    )


def figures(flows: list[TopicFigures]) -> Iterator[Cell]:
    """Write how often, how much, how late, and how much is lost, of several flows together."""
    rate, byte_rate = sum(one.rate for one in flows), sum(one.byte_rate for one in flows)
    yield Cell(write_rate(rate), rate) if rate else Cell(UNKNOWN, 0, FAINT)
    yield Cell(size(byte_rate), byte_rate) if byte_rate else Cell(UNKNOWN, 0, FAINT)
    late = [one.percentile_ns(0.5) for one in flows if one.latencies_ns]
    yield Cell(duration(max(late)), max(late)) if late else Cell(UNKNOWN, None, FAINT)
    counted = [one.lost for one in flows if not one.is_sampled]
    yield count(sum(counted), is_bad=True) if counted else Cell(UNKNOWN, None, FAINT)


def add_trends(flows: list[TopicFigures]) -> list[float]:
    """Add up what several publishers sent, interval by interval, up to now."""
    length = max((len(one.trend) for one in flows), default=0)
    padded = [(0.0,) * (length - len(one.trend)) + one.trend for one in flows]
    return [sum(interval) for interval in zip(*padded, strict=True)]


def draw_trend(trend: list[float]) -> str:
    """Draw the last intervals as bars, from nothing to a little more than the highest."""
    shown = trend[-_TREND_COLUMNS:]
    highest = _HEADROOM * max(shown, default=0)
    if not highest:
        return ""
    return "".join(_BARS[round((len(_BARS) - 1) * one / highest)] for one in shown)


def draw_course(trend: list[float], columns: int, lines: int) -> list[str]:
    """Draw a trend as bars of several lines, stretched over the columns, from nothing upwards.

    A scale that began with the lowest would make mountains of what is steady.
    """
    highest = max(trend, default=0) or 1.0
    steps = len(_BARS)
    shown = [trend[at * len(trend) // columns] for at in range(columns)] if trend else []
    heights = [max(round(lines * steps * one / highest), one > 0) for one in shown]
    return [
        "".join(
            " " if height <= floor else _BARS[min(height - floor, steps) - 1] for height in heights
        )
        for floor in range((lines - 1) * steps, -1, -steps)
    ]


def nodes(look: Look) -> Sheet:
    """List who is there."""
    columns = _columns("node,host,link", "up,heard,pub,sub,repaired,missing")
    declared = {(one.channel, one.node.id): one for one in look.peers}
    present = [
        (peer, declared.get((channel.name, bytes.fromhex(peer.id))))
        for channel in look.own.channels
        for peer in channel.peers
        if peer.is_present
    ]
    rows = tuple(
        _node_row(peer, one) for peer, one in sorted(present, key=lambda each: each[0].name)
    )
    return Sheet("Nodes", columns, rows, "nobody else is here")


def _node_row(peer: PeerStatistics, declared: RemotePeer | None) -> Row:
    tone = BAD if peer.is_slow else PLAIN
    publishes = 0 if declared is None else len(declared.publications)
    wants = 0 if declared is None else len(declared.patterns)
    return Row(
        peer.id,
        (
            text(peer.name, tone), text(peer.host), text("slow" if peer.is_slow else peer.link),
            Cell(show_uptime(peer.uptime_s), peer.uptime_s),
            Cell(f"{peer.heard_ms_ago:,.0f} ms", peer.heard_ms_ago), count(publishes),
            count(wants), count(peer.repaired_frames), count(peer.missing_frames, is_bad=True),
        ),
    )  # fmt: skip


def links(look: Look) -> Sheet:
    """List the ways by which this node sends and hears."""
    columns = _columns("link,at", "out/s,in/s,B out/s,B in/s,dropped")
    return Sheet("Links", columns, tuple(link_rows(look)), "this node is on no channel")


def schedule(look: Look) -> Sheet:
    """List who makes and wants samples."""
    columns = _columns("subject,who,role", "period,load,samples,missed")
    rows = []
    for one in look.producers:
        rows.append(_producer_row(one))
        rows += [_consumer_row(each, "  wants") for each in one.consumers]
    rows += [_consumer_row(each, "unserved") for each in look.unserved]
    return Sheet("Schedule", columns, tuple(rows), "nobody makes or wants samples")


def _producer_row(one: hubbub.ScheduledProducer) -> Row:
    return Row(
        f"{one.subject} {one.source} {one.port} makes",
        (
            text(one.subject), text(str(one.source)), Cell("makes", "makes"),
            Cell(f"{one.granted_ms:g} ms" if one.granted_ms else UNKNOWN, one.granted_ms),
            Cell(f"{write_rate(one.ticks_hz)}/s", one.ticks_hz), count(one.sent),
            count(one.skipped, is_bad=True),
        ),
    )  # fmt: skip


def _consumer_row(one: hubbub.ScheduledConsumer, role: str) -> Row:
    tone = BAD if role == "unserved" else PLAIN
    return Row(
        f"{one.subject} {one.source} {one.port} {role}",
        (
            text(one.subject), text(str(one.source)), Cell(role, role, tone),
            Cell(f"{one.period_ms:g} ms", one.period_ms), Cell("", None), count(one.served),
            count(one.missed, is_bad=True),
        ),
    )  # fmt: skip


def services(look: Look) -> Sheet:
    """List services, and who manages them."""
    columns = _columns("service,manager,at", "epoch,messages,subscribers")
    rows = tuple(
        Row(
            f"{one.key} {one.manager}",
            (
                text(one.name or one.key[:12]), text(one.manager[:12]), text(one.address),
                count(one.epoch), count(one.messages), count(one.subscribers),
            ),
        )
        for one in look.services
    )  # fmt: skip
    return Sheet("Services", columns, rows, "nobody subscribes to a service")


def events(look: Look) -> Sheet:
    """List what the bus told, the newest first."""
    # Where there is but one channel, the first line of the screen names it.
    channel = f" on {look.own.channels[0].name}" if len(look.own.channels) == 1 else ""
    rows = tuple(_event_row(told, channel) for told in reversed(look.events))
    return Sheet("Events", _columns("time,event"), rows, "nothing happened yet")


def _event_row(told: Told, channel: str) -> Row:
    event = told.event
    what = str(event).removesuffix(channel).removesuffix(",")
    tone = GOOD if isinstance(event, _GOOD_EVENTS) else BAD
    if isinstance(event, _PLAIN_EVENTS):
        tone = PLAIN
    clock = write_clock(told.time_ns)[: len("12:34:56")]
    return Row(str(told.number), (Cell(clock, told.number), text(what, tone)))


SHEETS: Final[tuple[Callable[[Look], Sheet], ...]] = (
    topics, nodes, links, schedule, services, events,
)  # fmt: skip


def summarise(look: Look) -> str:
    """Say in one line where this is and how much flows."""
    flows = [one for one in look.topics if not one.subject.startswith(_OWN)]
    rate, byte_rate = sum(one.rate for one in flows), sum(one.byte_rate for one in flows)
    lost = sum(one.lost for one in flows)
    flow = f"{write_rate(rate)} messages/s, {size(byte_rate)}/s"
    words = [plural(len(look.peers), "node"), flow, f"{lost:,} lost"]
    if look.dropped:
        words.append(f"{look.dropped:,} not counted")
    return " · ".join(words)
